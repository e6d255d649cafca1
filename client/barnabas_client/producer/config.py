"""The settings of a producer, and their defaults; see :mod:`barnabas_client.config`."""

from collections.abc import Callable
from typing import Any, Final, get_args

from barnabas_client.config import (
    Acks,
    Compression,
    Partitioner,
    check_callable_or_none,
    check_integer,
    check_name,
    check_one_of,
)
from barnabas_client.keywords import Settings
from barnabas_protocol.records import Codec

_INTEGERS: Final = (
    ("batch_size", 1),
    ("linger_ms", 0),
    ("max_request_size", 1),
    ("buffer_memory", 1),
    ("max_block_ms", 0),
    ("delivery_timeout_ms", 1),
    ("close_timeout_ms", 0),
    ("transaction_timeout_ms", 1),
)


class ProducerConfig(Settings):
    """The settings of a :class:`~barnabas_client.producer.producer.Producer`, which describes them."""

    acks: Acks | None = None
    enable_idempotence: bool | None = None
    compression_type: Compression | None = None
    batch_size: int = 16_384
    linger_ms: int = 0
    max_request_size: int = 1_048_576
    buffer_memory: int = 33_554_432
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    close_timeout_ms: int = 10_000
    partitioner: Partitioner | None = None
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    key_serializer: Callable[..., Any] | None = None
    value_serializer: Callable[..., Any] | None = None

    def check(self) -> None:
        for name, least in _INTEGERS:
            check_integer(name, getattr(self, name), least)
        if self.acks is not None:
            check_one_of("acks", self.acks, get_args(Acks))
        if self.enable_idempotence and self.required_acks != -1:
            raise ValueError(f'enable_idempotence is on with acks={self.acks!r}: give acks="all" or switch it off')
        if self.transactional_id is not None:
            check_name("transactional_id", self.transactional_id, "give a name, or None")
            if not self.idempotent:
                raise ValueError(
                    'transactional_id is given without idempotence: give acks="all", and leave enable_idempotence on'
                )
        check_one_of("compression_type", self.compression_type, (None, *get_args(Compression)))
        for name in ("partitioner", "key_serializer", "value_serializer"):
            check_callable_or_none(name, getattr(self, name))

    @property
    def required_acks(self) -> int:
        """`acks` as in a Produce request: -1, 0 or 1."""
        return self.acks if isinstance(self.acks, int) else -1

    @property
    def idempotent(self) -> bool:
        """Whether batches carry a producer id and sequence numbers."""
        return self.required_acks == -1 if self.enable_idempotence is None else self.enable_idempotence

    @property
    def codec(self) -> Codec:
        """`compression_type` as a codec."""
        return Codec.of(self.compression_type or "none")
