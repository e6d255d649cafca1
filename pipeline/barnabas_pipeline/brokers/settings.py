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
from typing import Any, Final, Self

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

    Names are Kafka's with "_" for "."; times are milliseconds, sizes bytes.
    """

    bootstrap_servers: str
    client_id: str = "barnabas-spark"
    client_rack: str = ""
    group_id: str | None = None
    security_protocol: str = "PLAINTEXT"
    ssl_truststore_type: str = "PEM"
    ssl_truststore_location: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_keystore_type: str = "PEM"
    ssl_keystore_location: str | None = None
    ssl_keystore_key: str | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_key_password: str | None = None
    ssl_endpoint_identification_algorithm: str = "https"
    isolation_level: str = "read_uncommitted"
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
    acks: int = -1
    compression_type: str = "none"
    batch_size: int = 131_072
    linger_ms: int = 5
    max_request_size: int = 1_048_576
    buffer_memory: int = 33_554_432
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000

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
        if self.security_protocol == "PLAINTEXT":
            for field in fields(self):
                if field.name.startswith("ssl_") and getattr(self, field.name) != field.default:
                    raise ValueError(
                        f"option 'kafka.{field.name.replace('_', '.')}' is given, but kafka.security.protocol is "
                        f"PLAINTEXT: give kafka.security.protocol=SSL as well"
                    )
        if self.ssl_keystore_key is not None and self.ssl_keystore_certificate_chain is None:
            raise ValueError(
                "option 'kafka.ssl.keystore.key' is given without 'kafka.ssl.keystore.certificate.chain': give both"
            )

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the TLS context of connections; None for plain text.

        Raises:
            ValueError: a certificate or key cannot be read.
        """
        if self.security_protocol == "PLAINTEXT":
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


_IDENTIFICATION: Final = _one_of("https", "")
_PEM: Final = _one_of("PEM")
_CONVERT: Final[dict[str, Callable[[str, str], Any]]] = {
    **{field.name: _number if field.type is int else _text for field in fields(Settings)},
    "security_protocol": _one_of("PLAINTEXT", "SSL"),
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
            f"Kafka option '{name}' is not supported: this client has no SASL. To do: use kafka.security.protocol=SSL, "
            "with a client certificate if the broker authenticates clients"
        )
    keys = [known.replace("_", ".") for known in _CONVERT]
    near = difflib.get_close_matches(key, keys, 1)
    hint = f": did you mean 'kafka.{near[0]}'?" if near else f". Supported: {', '.join(sorted(keys))}"
    raise ValueError(f"Kafka option '{name}' is not supported{hint}")
