"""Dead letters: records that a handler could not handle, written to another topic with the reason in their headers.

Key, value and headers stay. The timestamp is that of the failure, so retention counts from there. The added headers are
named like those of Kafka Streams (KIP-1034); their values are UTF-8 text.
"""

import traceback
from typing import Any, Final

from barnabas_client.config import ClientConfig
from barnabas_client.consumer.parallel.config import DeadLetterProducer, HandlerConfig
from barnabas_client.errors import error_for
from barnabas_client.logs import logger
from barnabas_client.producer.producer import Producer
from barnabas_client.structs import AnyRecord
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.consumer")

PREFIX: Final = "__barnabas.errors."
#: Characters of the message and of the stack trace that are kept; of the stack trace, the last ones.
_MESSAGE_LENGTH: Final = 2_000
_STACK_LENGTH: Final = 8_000


def headers(record: AnyRecord, error: BaseException, attempts: int, group: str | None) -> list[tuple[str, bytes]]:
    """The headers that a dead letter adds: ``__barnabas.errors.`` followed by exception, message, stacktrace, topic,
    partition, offset, timestamp (milliseconds since 1970), attempts, group."""
    kind = type(error)
    try:
        message = str(error)
    except Exception as second:
        message = f"(the error has no text: {second!r})"
    fields = {
        "exception": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        "message": message[:_MESSAGE_LENGTH],
        "stacktrace": _stack(error)[-_STACK_LENGTH:],
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp": str(record.timestamp),
        "attempts": str(attempts),
        "group": group or "",
    }
    return [(PREFIX + name, text.encode("utf-8", "backslashreplace")) for name, text in fields.items()]


def _stack(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as second:
        return f"(not available: {second!r})"


class DeadLetters:
    """Writes dead letters.

    Args:
        topic: the topic to write to.
        group: the consumer's group, for the header.
        client: settings for a producer of its own.
        producer: the program's, started; it is not stopped here. None to make one.
    """

    def __init__(
        self, topic: str, group: str | None, client: ClientConfig, producer: DeadLetterProducer[Any, Any] | None
    ) -> None:
        self.topic = topic
        self._group = group
        self._own: Producer | None = None
        if producer is None:
            producer = self._own = _producer(client)
        self._producer = producer

    async def start(self) -> None:
        """Connect, so that an unreachable cluster is noticed at once.

        Raises:
            KafkaConnectionError: no broker answers.
        """
        if self._own is not None:
            await self._own.start()

    async def stop(self) -> None:
        """Disconnect."""
        if self._own is not None:
            await self._own.stop()

    async def write(self, record: AnyRecord, error: BaseException, attempts: int) -> None:
        """Write a dead letter and wait for the acknowledgement.

        Raises:
            KafkaError: it was not written; the record must not count as finished.
        """
        added = headers(record, error, attempts, self._group)
        try:
            await self._producer.send_and_wait(
                self.topic, record.value, key=record.key, headers=(*record.headers, *added)
            )
        except KafkaError as failure:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            raise error_for(
                failure.code, f"the dead letter of {where} could not be written to {self.topic}", str(failure)
            ) from failure
        _log.warning(
            "a record failed and was written to the dead letter topic",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            attempts=attempts,
            dead_letter_topic=self.topic,
            reason=repr(error),
        )


def dead_letters(
    config: HandlerConfig, group: str | None, client: ClientConfig, *, deserialized: bool
) -> DeadLetters | None:
    """The dead letters of a run; None if it has no topic for them.

    Args:
        config: settings of the run.
        group: the consumer's group.
        client: settings of the consumer's client.
        deserialized: whether the consumer has deserializers.

    Raises:
        TypeError: the consumer has deserializers, and no producer is given that undoes what they do.
    """
    if config.dead_letter_topic is None:
        return None
    if config.producer is None and deserialized:
        raise TypeError(
            "dead_letter_topic is given and the consumer has deserializers: consumed keys and values are no longer "
            "bytes. To do: give a producer= whose serializers undo that, or deserialize in the handler"
        )
    return DeadLetters(config.dead_letter_topic, group, client, config.producer)


def _producer(client: ClientConfig) -> Producer:
    return Producer(
        bootstrap_servers=[f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in client.servers],
        client_id=f"{client.client_id}-dead-letters",
        request_timeout_ms=client.request_timeout_ms,
        metadata_max_age_ms=client.metadata_max_age_ms,
        retry_backoff_ms=client.retry_backoff_ms,
        retry_backoff_max_ms=client.retry_backoff_max_ms,
        connections_max_idle_ms=client.connections_max_idle_ms,
        security_protocol=client.security_protocol,
        ssl_context=client.tls,
        sasl_mechanism=client.sasl_mechanism,
        sasl_plain_username=client.sasl_plain_username,
        sasl_plain_password=client.sasl_plain_password,
        sasl_oauth_token_provider=client.sasl_oauth_token_provider,
    )
