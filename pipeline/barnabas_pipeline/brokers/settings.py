"""The ``kafka.*`` options: how to connect to brokers. Keys and units are those of Kafka's own clients.

Pure, except that :meth:`Settings.ssl_context` reads PEM files. A key that this client does not support is an error: a
security setting must not be ignored silently. Sources: ``CommonClientConfigs.java``, ``SslConfigs.java``, KIP-651
(PEM); ``KafkaSourceProvider.scala`` for the keys that Spark refuses.
"""

import difflib
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote, urlsplit

from barnabas_protocol.jaas import parse_jaas
from barnabas_protocol.sasl import MECHANISMS, OAUTHBEARER

if TYPE_CHECKING:
    # The client is slow to import: see `barnabas_pipeline.datasource`.
    from barnabas_client.config import Acks, Compression, IsolationLevel, SaslMechanism, SecurityProtocol

PREFIX: Final = "kafka."


def _text(name: str, value: str) -> str:
    if not value.strip():
        raise ValueError(f"option '{name}' is empty: give a value, or leave it out")
    return value.strip()


def _number(name: str, value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        number = -1
    if number < 0:
        raise ValueError(f"option '{name}' is {value!r}: give a whole number, 0 or more")
    return number


def boolean(name: str, value: str) -> bool:
    """Convert an option's value, written as Spark writes booleans.

    Raises:
        ValueError: the value is neither "true" nor "false".
    """
    if value.strip().lower() not in ("true", "false"):
        raise ValueError(f"option '{name}' is {value!r}: give true or false")
    return value.strip().lower() == "true"


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def convert(name: str, value: str) -> str:
        if value not in allowed:
            raise ValueError(f"option '{name}' is {value!r}: give one of {', '.join(map(repr, allowed))}")
        return value

    return convert


def _acks(name: str, value: str) -> int:
    if value not in ("all", "-1", "0", "1"):
        raise ValueError(f"option '{name}' is {value!r}: give all, 1 or 0")
    return -1 if value == "all" else int(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How to connect to brokers. Hashable, so that connections can be looked up by it; pickled for executors.

    Each attribute is the option ``kafka.*`` of the same name, with "." for "_".

    Attributes:
        bootstrap_servers: addresses of brokers to start with, ``host:port,host:port``. Required.
        client_id: the name of this client in the brokers' logs. Default: "barnabas-spark".
        client_rack: where the executors are, so that they may fetch from a near replica (KIP-392). Default: "", which
            is nowhere.
        group_id: the group to which the progress of streams is committed, for information. Default: None, no commits.
        security_protocol: ``PLAINTEXT``, ``SSL`` for TLS, ``SASL_SSL`` to log in over TLS, or ``SASL_PLAINTEXT``.
            Default: "PLAINTEXT".
        sasl_mechanism: how to log in: ``PLAIN``, which sends the password, ``SCRAM-SHA-256``, ``SCRAM-SHA-512``, or
            ``OAUTHBEARER`` with a token. Default: None.
        sasl_jaas_config: user and password, as Kafka's clients have them: ``MODULE required username="..."
            password="...";``. With ``OAUTHBEARER`` it may be left out. Default: None.
        sasl_oauthbearer_token_endpoint_url: the file with the token, ``file:///path``, which another program renews;
            driver and executors read it for each login. Default: None.
        sasl_login_callback_handler_class: how Kafka's clients get tokens; only
            ``org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler``, without effect. Default:
            None.
        ssl_truststore_type: the format of the trusted certificates; only ``PEM``. Default: "PEM".
        ssl_truststore_location: a file with trusted certificates. Default: None, which trusts the system's.
        ssl_truststore_certificates: trusted certificates as text. Default: None.
        ssl_keystore_type: the format of the client's certificate and key; only ``PEM``. Default: "PEM".
        ssl_keystore_location: a file with the client's key and certificates. Default: None.
        ssl_keystore_key: the client's key as text. Default: None.
        ssl_keystore_certificate_chain: the client's certificates as text, with `ssl_keystore_key`. Default: None.
        ssl_key_password: the password of the client's key. Default: None.
        ssl_endpoint_identification_algorithm: ``https`` checks that a broker's certificate is for its host name; empty
            does not. Default: "https".
        isolation_level: ``read_uncommitted``, or ``read_committed`` to leave out records of open and aborted
            transactions. Default: "read_uncommitted".
        check_crcs: verify the checksum of each batch. Default: True.
        request_timeout_ms: how long a response may take before the connection is closed. Default: 30000 ms.
        default_api_timeout_ms: how long a call may take, with its retries. Default: 60000 ms.
        metadata_max_age_ms: how often metadata is refreshed when nothing else refreshes it. Default: 300000 ms.
        retry_backoff_ms: the pause before the first retry; it doubles up to ``kafka.retry.backoff.max.ms``. Default:
            100 ms.
        retry_backoff_max_ms: the longest pause before a retry. Default: 1000 ms.
        connections_max_idle_ms: connections that are idle for so long are closed. Default: 540000 ms.
        fetch_max_wait_ms: how long a broker waits for records. Default: 500 ms.
        fetch_max_bytes: the limit of one fetch response. Default: 52428800 bytes.
        max_partition_fetch_bytes: the limit for a partition in one fetch response. Default: 4194304 bytes.
        acks: of the sink: when a record counts as written: ``all`` in all in-sync replicas, ``1`` on the leader, ``0``
            when it was sent. Default: -1, which is ``all``.
        compression_type: of the sink: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``. Default: "none".
        batch_size: of the sink: bytes of records that fit into one batch before it is compressed. Default: 131072
            bytes.
        linger_ms: of the sink: how long a batch that is not full waits for more records. Default: 5 ms.
        max_request_size: of the sink: the limit of one request, and so of one record. Default: 1048576 bytes.
        buffer_memory: of the sink: bytes of records that may wait for their acknowledgement. Default: 33554432 bytes.
        max_block_ms: of the sink: how long a write may wait for room in the buffer and for the topic's partitions.
            Default: 60000 ms.
        delivery_timeout_ms: of the sink: the time from a write to its acknowledgement, retries included. Default:
            120000 ms.
        transaction_timeout_ms: of the sink with transactions: after which the coordinator aborts a transaction. It must
            be longer than a micro-batch, and a restart after a kill; the brokers' ``transaction.max.timeout.ms`` limits
            it. Default: 900000 ms.
    """

    bootstrap_servers: str
    client_id: str = "barnabas-spark"
    client_rack: str = ""
    group_id: str | None = None
    security_protocol: "SecurityProtocol" = "PLAINTEXT"
    sasl_mechanism: "SaslMechanism | None" = None
    sasl_jaas_config: str | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_login_callback_handler_class: str | None = None
    ssl_truststore_type: str = "PEM"
    ssl_truststore_location: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_keystore_type: str = "PEM"
    ssl_keystore_location: str | None = None
    ssl_keystore_key: str | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_key_password: str | None = None
    ssl_endpoint_identification_algorithm: str = "https"
    isolation_level: "IsolationLevel" = "read_uncommitted"
    check_crcs: bool = True
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    metadata_max_age_ms: int = 300_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    connections_max_idle_ms: int = 540_000
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 4_194_304
    acks: "Acks" = -1
    compression_type: "Compression" = "none"
    batch_size: int = 131_072
    linger_ms: int = 5
    max_request_size: int = 1_048_576
    buffer_memory: int = 33_554_432
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    transaction_timeout_ms: int = 900_000

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Self:
        """Read the ``kafka.*`` options.

        Args:
            options: all options; keys in any case, as Spark passes them.

        Raises:
            ValueError: a key is missing, not supported or refused by Spark, or a value is invalid.
        """
        given: dict[str, Any] = {}
        for name, value in options.items():
            key = name.lower()
            if key.startswith(PREFIX):
                field = key.removeprefix(PREFIX)
                convert = _convert(name, field)
                given[field.replace(".", "_")] = convert(name, value)
        if "bootstrap_servers" not in given:
            raise ValueError(
                "Option 'kafka.bootstrap.servers' must be specified: give one or more brokers, such as 'localhost:9092'"
            )
        settings = cls(**given)
        settings._check()
        return settings

    def _check(self) -> None:
        if not self.security_protocol.endswith("SSL"):
            for field in fields(self):
                if field.name.startswith("ssl_") and getattr(self, field.name) != field.default:
                    raise ValueError(
                        f"option 'kafka.{field.name.replace('_', '.')}' is given, but kafka.security.protocol is "
                        f"{self.security_protocol}: give kafka.security.protocol=SSL as well, or SASL_SSL"
                    )
        self._check_login()
        if self.ssl_keystore_key is not None and self.ssl_keystore_certificate_chain is None:
            raise ValueError(
                "option 'kafka.ssl.keystore.key' is given without 'kafka.ssl.keystore.certificate.chain': give both"
            )

    def _check_login(self) -> None:
        login = (self.sasl_mechanism, self.sasl_jaas_config)
        of_tokens = (self.sasl_oauthbearer_token_endpoint_url, self.sasl_login_callback_handler_class)
        if not self.security_protocol.startswith("SASL_"):
            if (*login, *of_tokens) != (None,) * 4:
                raise ValueError(
                    f"option 'kafka.sasl.*' is given, but kafka.security.protocol is {self.security_protocol}: give "
                    "kafka.security.protocol=SASL_SSL as well"
                )
        elif self.sasl_mechanism == OAUTHBEARER:
            self.token_file()
            if options := self._jaas_options():
                raise ValueError(
                    f"option 'kafka.sasl.jaas.config' has {', '.join(options)}: tokens are not requested from a "
                    f"provider. To do: {_RENEW}, and leave it out"
                )
        elif None in login:
            raise ValueError(
                f"option 'kafka.security.protocol' is {self.security_protocol}: give kafka.sasl.mechanism and "
                "kafka.sasl.jaas.config as well"
            )
        elif of_tokens != (None, None):
            raise ValueError(
                f"option '{_TOKEN_URL}' or '{_TOKEN_HANDLER}' is given, but kafka.sasl.mechanism is "
                f"{self.sasl_mechanism}: give kafka.sasl.mechanism={OAUTHBEARER}, or leave it out"
            )
        else:
            self.login()

    def token_file(self) -> Path | None:
        """The file with the token; None without one.

        Raises:
            ValueError: there is none with OAUTHBEARER, or its URL is not that of a file.
        """
        if self.sasl_mechanism != OAUTHBEARER:
            return None
        if self.sasl_oauthbearer_token_endpoint_url is None:
            raise ValueError(f"option 'kafka.sasl.mechanism' is {OAUTHBEARER}: {_RENEW}")
        url = urlsplit(self.sasl_oauthbearer_token_endpoint_url)
        if url.scheme != "file" or url.netloc not in ("", "localhost") or not url.path.startswith("/"):
            # Not the address: it may have a password.
            raise ValueError(f"option '{_TOKEN_URL}' is not that of a file: tokens are not requested. To do: {_RENEW}")
        return Path(unquote(url.path))

    def _jaas_options(self) -> Mapping[str, str]:
        """The options of ``kafka.sasl.jaas.config``; none without it.

        Raises:
            ValueError: it cannot be read; the text has no part of it.
        """
        if self.sasl_jaas_config is None:
            return {}
        try:
            return parse_jaas(self.sasl_jaas_config).options
        except ValueError as error:
            raise ValueError(f"option 'kafka.sasl.jaas.config' {error}") from None

    def login(self) -> tuple[str, str] | None:
        """User and password; None without a login, and with a token.

        Raises:
            ValueError: ``kafka.sasl.jaas.config`` does not have them; the text has no part of it.
        """
        if self.sasl_jaas_config is None or self.sasl_mechanism == OAUTHBEARER:
            return None
        options = self._jaas_options()
        user, password = options.get("username"), options.get("password")
        if not user or not password:
            raise ValueError('option \'kafka.sasl.jaas.config\' must have username="..." and password="..."')
        return user, password

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None for plain text.

        Raises:
            ValueError: a certificate or key cannot be read.
        """
        if not self.security_protocol.endswith("SSL"):
            return None
        try:
            context = ssl.create_default_context(
                cafile=self.ssl_truststore_location, cadata=self.ssl_truststore_certificates
            )
            context.check_hostname = self.ssl_endpoint_identification_algorithm == "https"
            if self.ssl_keystore_location is not None:
                context.load_cert_chain(self.ssl_keystore_location, password=self.ssl_key_password)
            elif self.ssl_keystore_key is not None:
                with tempfile.TemporaryDirectory(prefix="barnabas-") as folder:
                    path = Path(folder) / "key.pem"
                    path.touch(0o600)
                    path.write_text(f"{self.ssl_keystore_key}\n{self.ssl_keystore_certificate_chain}\n")
                    context.load_cert_chain(path, password=self.ssl_key_password)
        except (OSError, ssl.SSLError) as error:
            raise ValueError(
                f"the certificates or the key in the options 'kafka.ssl.*' cannot be read: {error}. To do: give PEM "
                "files that the driver and every executor can read"
            ) from error
        return context

    def __repr__(self) -> str:
        """Describe the settings without secrets."""
        return f"Settings({self.bootstrap_servers}, {self.security_protocol})"


_TOKEN_URL: Final = "kafka.sasl.oauthbearer.token.endpoint.url"
_TOKEN_HANDLER: Final = "kafka.sasl.login.callback.handler.class"
_RENEW: Final = f"let another program renew the token in a file, and give {_TOKEN_URL}=file:///path"
#: The class by which Kafka's clients read a token from a file, by its name since Kafka 4 and before.
_FILE_HANDLERS: Final = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{package}OAuthBearerLoginCallbackHandler"
    for package in ("", "secured.")
)
_IDENTIFICATION: Final = _one_of("https", "")
_PEM: Final = _one_of("PEM")
_CONVERT: Final[dict[str, Callable[[str, str], Any]]] = {
    **{field.name: _number if field.type is int else _text for field in fields(Settings)},
    "security_protocol": _one_of("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT"),
    "sasl_mechanism": _one_of(*MECHANISMS, OAUTHBEARER),
    "sasl_login_callback_handler_class": _one_of(*_FILE_HANDLERS),
    "ssl_truststore_type": _PEM,
    "ssl_keystore_type": _PEM,
    "ssl_endpoint_identification_algorithm": _IDENTIFICATION,
    "isolation_level": _one_of("read_uncommitted", "read_committed"),
    "check_crcs": boolean,
    "acks": _acks,
    "compression_type": _one_of("none", "gzip", "snappy", "lz4", "zstd"),
}
#: Keys that Spark's own connector refuses too, with its reasons.
_FORBIDDEN: Final = {
    "auto.offset.reset": "Spark manages offsets itself: give startingOffsets",
    "enable.auto.commit": "Spark manages offsets itself: they are committed for information if kafka.group.id is given",
    "interceptor.classes": "there are no interceptors: transform the DataFrame",
    "key.deserializer": "keys are always bytes: cast the column",
    "value.deserializer": "values are always bytes: cast the column",
    "key.serializer": "keys are bytes or strings: cast the column",
    "value.serializer": "values are bytes or strings: cast the column",
}


def _convert(name: str, key: str) -> Callable[[str, str], Any]:
    """Return the function that converts the value of a ``kafka.*`` option."""
    if key in _FORBIDDEN:
        raise ValueError(f"Kafka option '{name}' is not supported: {_FORBIDDEN[key]}")
    found = _CONVERT.get(key.replace(".", "_")) if "_" not in key else None
    if found is not None:
        return found
    if key.startswith("sasl."):
        raise ValueError(
            f"Kafka option '{name}' is not supported: of SASL there are kafka.sasl.mechanism and "
            f"kafka.sasl.jaas.config, and for {OAUTHBEARER} {_TOKEN_URL}"
        )
    keys = [known.replace("_", ".") for known in _CONVERT]
    near = difflib.get_close_matches(key, keys, 1)
    hint = f": did you mean 'kafka.{near[0]}'?" if near else f". Supported: {', '.join(sorted(keys))}"
    raise ValueError(f"Kafka option '{name}' is not supported{hint}")
