"""Every configuration key that the broker reads: Kafka's name, default and unit.

A :class:`Key` is declared once and read with its type: ``config[LOG_SEGMENT_BYTES]`` is an int. The keys of topics and
of groups follow the broker keys; each names the broker key that holds its default, so that DescribeConfigs can show
where a value comes from.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

from barnabas_broker.config.durations import duration_seconds
from barnabas_broker.config.listeners import (
    PLAINTEXT,
    PROTOCOLS,
    Listener,
    parse_advertised,
    parse_listeners,
    parse_protocols,
)
from barnabas_broker.errors import BrokerError

T = TypeVar("T")


class ConfigError(BrokerError):
    """A configuration that cannot be used; the text names the key, its value and what is accepted."""


class ConfigType(IntEnum):
    """The type codes of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """One configuration key.

    Attributes:
        name: Kafka's name.
        type: its type in DescribeConfigs.
        default: its value if nothing is set.
        parse: turns text into a value; raises ValueError with what is accepted.
        doc: what it does, units included.
        fallbacks: coarser keys that apply if it is not set, with the factor to its unit
            (``log.retention.minutes`` for ``log.retention.ms``), in Kafka's order.
        broker: for a key of a topic or of a group, the broker key that holds its default.
    """

    name: str
    type: ConfigType
    default: T
    parse: Callable[[str], T]
    doc: str
    fallbacks: "tuple[tuple[Key[Any], int], ...]" = ()
    broker: "Key[T] | None" = None

    @property
    def secret(self) -> bool:
        """Whether its value is left out of DescribeConfigs, logs and errors."""
        return self.type is ConfigType.PASSWORD

    @property
    def unit(self) -> str:
        """The unit of its value, which Kafka puts into the name; "" for none."""
        for ending, unit in _UNITS.items():
            if self.name.endswith(ending):
                return unit
        return ""

    def read(self, text: str) -> T:
        """Parse a value.

        Raises:
            ConfigError: the value is not accepted; the text names the key, the value and what is accepted.
        """
        try:
            return self.parse(text.strip())
        except ValueError as error:
            shown = "" if self.secret else f"={text!r}"
            raise ConfigError(f"{self.name}{shown}: {error}") from None


def show(value: object) -> str | None:
    """A value as Kafka prints it: booleans in lower case, lists with commas; None stays None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value)


_UNITS: Final = {
    ".per.second": "bytes/s",
    ".ms": "ms",
    ".seconds": "s",
    ".minutes": "min",
    ".hours": "h",
    ".bytes": "bytes",
    ".messages": "records",
}

SHORT_MAX: Final = 2**15 - 1
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

BROKER_KEYS: Final[dict[str, Key[Any]]] = {}
TOPIC_KEYS: Final[dict[str, Key[Any]]] = {}
GROUP_KEYS: Final[dict[str, Key[Any]]] = {}
CLIENT_METRICS_KEYS: Final[dict[str, Key[Any]]] = {}
#: Keys that a listener may have of its own, as ``listener.name.NAME.KEY``.
LISTENER_KEYS: Final[set[str]] = set()
#: Of these, the ones that it may have for one SASL mechanism, as ``listener.name.NAME.MECHANISM.KEY``.
MECHANISM_KEYS: Final[set[str]] = set()
#: The SASL mechanisms that are served.
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


#: The class that Kafka's configurations name; ours does the same.
STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
#: Likewise for the tokens of OAUTHBEARER: signed ones, by its name since Kafka 4 and before, and others.
SIGNED_TOKENS: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_TOKENS: Final = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("not a whole number") from None
        if not low <= value <= high:
            raise ValueError(f"must be from {low} to {high}")
        return value

    return parse


def plain(of_type: ConfigType) -> Callable[[str], Any]:
    """A parser that accepts every value of a type."""
    whole = {ConfigType.SHORT: SHORT_MAX, ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}
    if of_type in whole:
        return _integer(-whole[of_type] - 1, whole[of_type])
    if of_type is ConfigType.BOOLEAN:
        return _boolean
    return _number if of_type is ConfigType.DOUBLE else str


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("not a number") from None


def _mode(text: str) -> str:
    try:
        mode = int(text, 8)
    except ValueError:
        raise ValueError("not an octal number") from None
    if not 0o700 <= mode <= 0o777:
        raise ValueError("must be from 0700 to 0777: the broker itself reads and writes")
    return text


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def _ratio(text: str) -> float:
    value = _number(text)
    if not 0 <= value <= 1:
        raise ValueError("must be from 0 to 1")
    return value


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return text

    return parse


def _one_of_any_case(*choices: str) -> Callable[[str], str]:
    parse = _one_of(*choices)
    return lambda text: parse(text.lower())


def _offset_reset(text: str) -> str:
    if text in ("earliest", "latest"):
        return text
    if text.startswith(BY_DURATION):
        duration_seconds(text.removeprefix(BY_DURATION))
        return text
    raise ValueError(
        "must be earliest, latest, or by_duration: with an ISO 8601 duration, by_duration:PT1H for instance"
    )


def _assignors(text: str) -> tuple[str, ...]:
    values = tuple(part.strip() for part in text.split(",") if part.strip())
    if not values:
        raise ValueError("must name at least one")
    return values


def _overrides(text: str) -> str:
    for part in text.split(",") if text else ():
        host, _, count = part.rpartition(":")
        if not host.strip() or not count.strip().isdecimal() or int(count[:12]) > INT_MAX:
            raise ValueError("must be a list of HOST:CONNECTIONS")
    return text


def _list_of(*choices: str) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        if not text.strip():
            return ()
        values = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
        if any(value not in choices for value in values):
            raise ValueError(f"must be a list of {', '.join(choices)}")
        return values

    return parse


def _distinct(text: str) -> tuple[str, ...]:
    values = tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text.strip() else ()
    if "" in values:
        raise ValueError("must be a list without empty values")
    return values


def _store_type(text: str) -> str:
    if text.upper() == "PEM":
        return "PEM"
    first = "keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12, then "
    raise ValueError(
        "only PEM is served. To do: convert the store with "
        f"{first if text.upper() == 'JKS' else ''}openssl pkcs12 -in FILE{'.p12' if text.upper() == 'JKS' else ''} "
        "-out FILE.pem, and set the type to PEM"
    )


def _tls_versions(text: str) -> tuple[str, ...]:
    versions = _list_of("TLSv1.2", "TLSv1.3")(text)
    if not versions:
        raise ValueError("must name TLSv1.2, TLSv1.3 or both")
    return versions


def _directory(text: str) -> str:
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError("must name a directory")
    if len(names) > 1:
        raise ValueError(f"names {len(names)} directories, and a broker keeps its log in one: give one of them")
    return names[0]


def _roles(text: str) -> tuple[str, ...]:
    values = tuple(part.strip() for part in text.split(",") if part.strip())
    if any(value not in ("broker", "controller") for value in values):
        raise ValueError("must be a list of broker, controller")
    if values == ("controller",):
        raise ValueError("Barnabas has no controllers: brokers coordinate through etcd (cluster.url)")
    return values


def _authorizer(text: str) -> str:
    if text not in ("", STANDARD_AUTHORIZER):
        raise ValueError(f"must be {STANDARD_AUTHORIZER} or empty: Barnabas loads no Java classes")
    return text


def _token_handler(text: str) -> str:
    if text not in ("", *SIGNED_TOKENS, UNSECURED_TOKENS):
        raise ValueError(f"must be {SIGNED_TOKENS[0]}, {UNSECURED_TOKENS} or empty: Barnabas loads no Java classes")
    return text


def _jwks_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
    except ValueError as error:
        raise ValueError(f"not a URL: {error}") from None
    if text and (parts.username is not None or parts.password is not None):
        raise ValueError("must have no user and no password, because it is shown")
    if text and not (
        (parts.scheme == "file" and host in ("", "localhost") and parts.path.startswith("/"))
        or (parts.scheme == "https" and host)
        or (parts.scheme == "http" and host in _LOOPBACK)
    ):
        raise ValueError(
            "must be https://HOST/PATH or file:///PATH: anybody on the way to an http:// address can change the keys"
        )
    return text


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip().upper() for part in text.split(",") if part.strip())


def _broker(key: Key[T]) -> Key[T]:
    BROKER_KEYS[key.name] = key
    return key


def _int(name: str, default: int, doc: str, low: int = 0, high: int = INT_MAX) -> Key[int]:
    return _broker(Key(name, ConfigType.INT, default, _integer(low, high), doc))


def _long(
    name: str, default: int, doc: str, low: int = 0, fallbacks: tuple[tuple[Key[Any], int], ...] = ()
) -> Key[int]:
    return _broker(Key(name, ConfigType.LONG, default, _integer(low, LONG_MAX), doc, fallbacks))


def _flag(name: str, default: bool, doc: str) -> Key[bool]:
    return _broker(Key(name, ConfigType.BOOLEAN, default, _boolean, doc))


def _text(name: str, default: str, doc: str) -> Key[str]:
    return _broker(Key(name, ConfigType.STRING, default, str, doc))


def _secret(name: str, doc: str) -> Key[str]:
    return _of_listener(_broker(Key(name, ConfigType.PASSWORD, "", str, doc)))


def _of_listener(key: Key[T]) -> Key[T]:
    LISTENER_KEYS.add(key.name)
    return key


def _of_mechanism(key: Key[T]) -> Key[T]:
    MECHANISM_KEYS.add(key.name)
    return _of_listener(key)


def _topic(name: str, broker: Key[T]) -> Key[T]:
    key = Key(name, broker.type, broker.default, broker.parse, broker.doc, (), broker)
    TOPIC_KEYS[name] = key
    return key


def _topic_only(key: Key[T]) -> Key[T]:
    TOPIC_KEYS[key.name] = key
    return key


def _group(name: str, broker: Key[T]) -> Key[T]:
    key = Key(name, broker.type, broker.default, broker.parse, broker.doc, (), broker)
    GROUP_KEYS[name] = key
    return key


def _group_only(key: Key[T]) -> Key[T]:
    GROUP_KEYS[key.name] = key
    return key


def _client_metrics(key: Key[T]) -> Key[T]:
    CLIENT_METRICS_KEYS[key.name] = key
    return key


#: How a value of share.auto.offset.reset begins that names a duration.
BY_DURATION: Final = "by_duration:"

_HOUR = 3_600_000
_DAY = 24 * _HOUR

# Identity and connections
BROKER_ID = _int("broker.id", -1, "The older name of node.id.", -1)
NODE_ID: Final[Key[int]] = _broker(
    Key("node.id", ConfigType.INT, 1, _integer(0, INT_MAX), "The id of this broker.", ((BROKER_ID, 1),))
)
LOG_DIR = _broker(
    Key("log.dir", ConfigType.LIST, "barnabas-data", _directory, "The log directory, unless log.dirs is set.")
)
LOG_DIRS = _broker(
    Key(
        "log.dirs",
        ConfigType.LIST,
        LOG_DIR.default,
        _directory,
        "The log directory; one, not a list. --data-dir is the same.",
        ((LOG_DIR, 1),),
    )
)
PROCESS_ROLES: Final[Key[tuple[str, ...]]] = _broker(
    Key(
        "process.roles",
        ConfigType.LIST,
        (),
        _roles,
        "The roles of this process: broker,controller for a single broker; broker needs cluster.url.",
    )
)
CONTROLLER_LISTENER_NAMES: Final[Key[tuple[str, ...]]] = _broker(
    Key(
        "controller.listener.names",
        ConfigType.LIST,
        (),
        _names,
        "Listeners that are for controllers: they are not opened, because Barnabas has no controllers.",
    )
)
LOG_DIR_MODE: Final[Key[str]] = _broker(
    Key(
        "log.dir.mode",
        ConfigType.STRING,
        "0700",
        _mode,
        "Permissions of new folders in the log directory, octal; files get the same without x. Barnabas' own.",
    )
)
LISTENERS: Final[Key[tuple[Listener, ...]]] = _broker(
    Key(
        "listeners",
        ConfigType.LIST,
        (),
        parse_listeners,
        "Where to listen: NAME://HOST:PORT, separated by commas; empty for PLAINTEXT at --host and --port.",
    )
)
ADVERTISED_LISTENERS: Final[Key[tuple[Listener, ...]]] = _broker(
    Key(
        "advertised.listeners",
        ConfigType.LIST,
        (),
        parse_advertised,
        "The address that clients of a listener get: [NAME://]HOST:PORT, separated by commas; a listener that is left "
        "out advertises its own address.",
    )
)
SECURITY_INTER_BROKER_PROTOCOL = _broker(
    Key(
        "security.inter.broker.protocol",
        ConfigType.STRING,
        PLAINTEXT,
        _one_of(*PROTOCOLS),
        "The listener by which brokers reach each other, if it has the name of its protocol.",
    )
)
INTER_BROKER_LISTENER_NAME = _broker(
    Key(
        "inter.broker.listener.name",
        ConfigType.STRING,
        PLAINTEXT,
        str.upper,
        "The listener by which brokers reach each other; the same on all of them.",
        ((SECURITY_INTER_BROKER_PROTOCOL, 1),),
    )
)
LISTENER_SECURITY_PROTOCOL_MAP: Final[Key[tuple[str, ...]]] = _broker(
    Key(
        "listener.security.protocol.map",
        ConfigType.STRING,
        (),
        parse_protocols,
        "What listeners speak: NAME:PROTOCOL, separated by commas, with PLAINTEXT or SSL. Without it, a listener "
        "speaks the protocol that it is named after, and otherwise PLAINTEXT.",
    )
)

# TLS. Each of these may be given for a listener alone, as listener.name.NAME.KEY.
SSL_KEYSTORE_TYPE = _of_listener(
    _broker(
        Key("ssl.keystore.type", ConfigType.STRING, "PEM", _store_type, "The format of certificate and key: PEM only.")
    )
)
SSL_KEYSTORE_LOCATION = _of_listener(
    _text("ssl.keystore.location", "", "A PEM file with the private key, the certificate and its chain.")
)
SSL_KEYSTORE_CERTIFICATE_CHAIN = _secret(
    "ssl.keystore.certificate.chain", "The certificate and its chain as PEM text, in place of a file."
)
SSL_KEYSTORE_KEY = _secret("ssl.keystore.key", "The private key as PEM text, in place of a file.")
SSL_KEY_PASSWORD = _secret("ssl.key.password", "The password of the private key.")
SSL_TRUSTSTORE_TYPE = _of_listener(
    _broker(
        Key(
            "ssl.truststore.type",
            ConfigType.STRING,
            "PEM",
            _store_type,
            "The format of trusted certificates: PEM only.",
        )
    )
)
SSL_TRUSTSTORE_LOCATION = _of_listener(
    _text("ssl.truststore.location", "", "A PEM file with trusted certificates, of clients and of other brokers.")
)
SSL_TRUSTSTORE_CERTIFICATES = _secret("ssl.truststore.certificates", "The same as PEM text, in place of a file.")
SSL_CLIENT_AUTH = _of_listener(
    _broker(
        Key(
            "ssl.client.auth",
            ConfigType.STRING,
            "none",
            _one_of("required", "requested", "none"),
            "Whether clients must send a certificate, may send one, or are not asked.",
        )
    )
)
_both_versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
SSL_ENABLED_PROTOCOLS = _of_listener(
    _broker(
        Key("ssl.enabled.protocols", ConfigType.LIST, _both_versions, _tls_versions, "The versions of TLS: 1.2, 1.3.")
    )
)
SSL_PROTOCOL = _of_listener(
    _broker(
        Key(
            "ssl.protocol",
            ConfigType.STRING,
            "TLSv1.3",
            _one_of("TLSv1.2", "TLSv1.3"),
            "The newest version of TLS that is used.",
        )
    )
)
SSL_ENDPOINT_IDENTIFICATION_ALGORITHM = _of_listener(
    _broker(
        Key(
            "ssl.endpoint.identification.algorithm",
            ConfigType.STRING,
            "https",
            lambda text: _one_of("https", "")(text.lower()),
            "https checks that the certificates of other brokers are for their advertised host names; empty does not.",
        )
    )
)
SSL_PRINCIPAL_MAPPING_RULES = _of_listener(
    _text(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "How the subject of a client's certificate becomes the name of its principal (KIP-371).",
    )
)

# Authorization
AUTHORIZER_CLASS_NAME = _broker(
    Key(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        _authorizer,
        f"What decides what clients may do. Empty: nothing, all may do everything. {STANDARD_AUTHORIZER}: ACLs.",
    )
)
SUPER_USERS = _text(
    "super.users",
    "",
    "Principals that may do everything, whatever the ACLs say, as User:NAME, separated by semicolons. The brokers of a "
    "cluster must be among them.",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND = _flag(
    "allow.everyone.if.no.acl.found", False, "Whether every client may use a resource that no ACL applies to."
)

# SASL
_no_mechanisms: tuple[str, ...] = ()
SASL_ENABLED_MECHANISMS = _of_listener(
    _broker(
        Key(
            "sasl.enabled.mechanisms",
            ConfigType.LIST,
            _no_mechanisms,
            _list_of(*MECHANISMS),
            f"The SASL mechanisms that clients may choose: {', '.join(MECHANISMS)}.",
        )
    )
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL = _text(
    "sasl.mechanism.inter.broker.protocol",
    "GSSAPI",
    "The SASL mechanism by which brokers log in to each other, if their listener speaks SASL: PLAIN, SCRAM-SHA-256 or "
    "SCRAM-SHA-512.",
)
PLAIN_SASL_JAAS_CONFIG = _secret(
    "plain.sasl.jaas.config",
    "The users of PLAIN and their passwords, as Kafka's PlainLoginModule has them. In Kafka it must be given for a "
    "listener, as listener.name.NAME.plain.sasl.jaas.config.",
)
SCRAM_SHA_256_SASL_JAAS_CONFIG = _secret(
    "scram-sha-256.sasl.jaas.config",
    "A broker's own user and password for SCRAM-SHA-256, as Kafka's ScramLoginModule has them.",
)
SCRAM_SHA_512_SASL_JAAS_CONFIG = _secret("scram-sha-512.sasl.jaas.config", "The same for SCRAM-SHA-512.")
SASL_JAAS_CONFIG = _secret(
    "sasl.jaas.config", "A broker's own user and password, for mechanisms that have no such key of their own."
)
CONNECTIONS_MAX_REAUTH_MS = _of_mechanism(
    _long(
        "connections.max.reauth.ms",
        0,
        "Ms after which a client that has logged in must do so again (KIP-368); 0 for never.",
    )
)
OAUTHBEARER_SASL_JAAS_CONFIG = _secret(
    "oauthbearer.sasl.jaas.config",
    "Options of OAUTHBEARER, as Kafka's OAuthBearerLoginModule has them: ssl.truststore.location, PEM with the "
    "authorities of the token provider, and those that begin with unsecuredValidator.",
)
SASL_SERVER_CALLBACK_HANDLER_CLASS = _of_mechanism(
    _broker(
        Key(
            "sasl.server.callback.handler.class",
            ConfigType.CLASS,
            "",
            _token_handler,
            "How the tokens of OAUTHBEARER are checked. Empty, or Kafka's OAuthBearerValidatorCallbackHandler: by "
            f"their signature. {UNSECURED_TOKENS}: not at all, so that each client may write its own; for tests only.",
        )
    )
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL = _of_mechanism(
    _broker(
        Key(
            "sasl.oauthbearer.jwks.endpoint.url",
            ConfigType.STRING,
            "",
            _jwks_url,
            "Where the keys of the token provider are, a JWK set: https://..., or file:///PATH; http:// only on a "
            "loopback address.",
        )
    )
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_REFRESH_MS = _of_mechanism(
    _long(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "Ms between two readings of the keys of the token provider. A token with a key that is not known brings one "
        "sooner.",
        1,
    )
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MS = _of_mechanism(
    _long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        "Ms until the keys are read again after a failure; twice as long after each further one.",
        1,
    )
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_RETRY_BACKOFF_MAX_MS = _of_mechanism(
    _long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        "The longest such wait, in ms.",
        1,
    )
)
_no_audiences: tuple[str, ...] = ()
SASL_OAUTHBEARER_EXPECTED_AUDIENCE = _of_mechanism(
    _broker(
        Key(
            "sasl.oauthbearer.expected.audience",
            ConfigType.LIST,
            _no_audiences,
            _parts,
            "A token must be for one of these (claim aud). Empty: tokens that are for an audience are refused.",
        )
    )
)
SASL_OAUTHBEARER_EXPECTED_ISSUER = _of_mechanism(
    _text(
        "sasl.oauthbearer.expected.issuer",
        "",
        "Who must have made a token (claim iss). Empty: not checked.",
    )
)
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME = _of_mechanism(
    _text("sasl.oauthbearer.scope.claim.name", "scope", "The claim of a token with its scopes.")
)
SASL_OAUTHBEARER_SUB_CLAIM_NAME = _of_mechanism(
    _text("sasl.oauthbearer.sub.claim.name", "sub", "The claim of a token with the name of the user.")
)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS = _of_mechanism(
    _int(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "By how many seconds the clocks of token provider and broker may differ. A token that is over is refused in "
        "any case.",
    )
)
SASL_SERVER_MAX_RECEIVE_SIZE = _int(
    "sasl.server.max.receive.size", 524_288, "The largest request of a client that has not authenticated, in bytes."
)
CONNECTION_FAILED_AUTHENTICATION_DELAY_MS = _int(
    "connection.failed.authentication.delay.ms",
    100,
    "Ms until a client whose authentication failed is answered and disconnected.",
)

# Connections
SOCKET_REQUEST_MAX_BYTES = _int("socket.request.max.bytes", 104_857_600, "The largest request, in bytes.", 1)
CONNECTIONS_MAX_IDLE_MS = _long(
    "connections.max.idle.ms",
    600_000,
    "Close connections that are idle longer, in ms, and those whose request takes longer to arrive; -1: never.",
    -1,
)
QUEUED_MAX_REQUEST_BYTES = _long(
    "queued.max.request.bytes",
    268_435_456,
    "Bytes of all requests over 64 KiB that arrive or are carried out; -1 without limit, which is Kafka's default. "
    "When they are used up, connections are not read in the middle of such a request, except for one at a time, which "
    "has 10 s to send the rest.",
    -1,
)
QUEUED_MAX_RESPONSE_BYTES = _long(
    "queued.max.response.bytes",
    268_435_456,
    "Bytes of all responses in memory that clients have not read; -1 without limit. When they are used up, a Fetch "
    "answers one batch, and a connection whose responses wait starts no further request. Barnabas' own.",
    -1,
)
CONNECTION_MAX_RESPONSE_BYTES = _int(
    "connection.max.response.bytes",
    16_777_216,
    "Bytes of responses of one connection that may be ready while an earlier one is not; then it starts no further "
    "request. Barnabas' own.",
    1,
)
MAX_CONNECTIONS = _of_listener(
    _int(
        "max.connections",
        INT_MAX,
        "Connections that are served at a time; at most half as many as the process may have descriptors (ulimit -n). "
        "Where brokers have a listener of their own, it has no part in the limit of the broker, only one of its own.",
    )
)
MAX_CONNECTIONS_PER_IP = _int("max.connections.per.ip", INT_MAX, "Connections from one address at a time.")
MAX_CONNECTIONS_PER_IP_OVERRIDES = _broker(
    Key(
        "max.connections.per.ip.overrides",
        ConfigType.STRING,
        "",
        _overrides,
        "The same for single addresses or hosts, as 127.0.0.1:200,host:100.",
    )
)
MAX_CONNECTION_CREATION_RATE = _of_listener(
    _int(
        "max.connection.creation.rate",
        INT_MAX,
        "Connections that are accepted in a second; others wait. May be set for a listener as well.",
    )
)
QUOTA_WINDOW_NUM = _int(
    "quota.window.num", 11, "Samples over which the rates of clients and connections are measured.", 1, 1000
)
QUOTA_WINDOW_SIZE_SECONDS = _int("quota.window.size.seconds", 1, "The length of each of these samples, in s.", 1)
CONTROLLER_QUOTA_WINDOW_NUM = _int(
    "controller.quota.window.num",
    11,
    "Samples of the quota controller_mutation_rate: a client may create and delete at once what it may in all of them.",
    1,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = _int(
    "controller.quota.window.size.seconds", 1, "The length of each of these samples, in s.", 1
)
EVENT_LOOP_WATCHDOG_MS = _int(
    "event.loop.watchdog.ms",
    0,
    "Ms for which the event loop may be held before a line in the log says by what, to find out why clients wait; "
    "50 is what the broker promises to keep. 0: not watched. Barnabas' own.",
)
FETCH_MAX_BYTES = _int("fetch.max.bytes", 57_671_680, "The most bytes that one Fetch answers.", 1024)
FETCH_SESSION_SLOTS = _int("max.incremental.fetch.session.cache.slots", 1000, "Fetch sessions that are kept (KIP-227).")
FETCH_SESSION_PARTITIONS = _int(
    "max.incremental.fetch.session.cache.partitions",
    200_000,
    "Partitions of all fetch sessions together, 350 bytes each; clients without a session send full requests. "
    "Barnabas' own.",
)

# Replication
REPLICA_LAG_TIME_MAX_MS = _long("replica.lag.time.max.ms", 30_000, "A follower that lags longer leaves the ISR, in ms.")
REPLICA_FETCH_WAIT_MAX_MS = _int("replica.fetch.wait.max.ms", 500, "How long a leader may let a follower wait, in ms.")
REPLICA_FETCH_MIN_BYTES = _int("replica.fetch.min.bytes", 1, "Bytes that a follower waits for.")
REPLICA_FETCH_MAX_BYTES = _int("replica.fetch.max.bytes", 1_048_576, "Bytes of one partition in a follower's fetch.")
REPLICA_FETCH_RESPONSE_MAX_BYTES = _int(
    "replica.fetch.response.max.bytes", 10_485_760, "Bytes of the response to a follower's fetch at most."
)
REPLICA_FETCH_BACKOFF_MS = _int("replica.fetch.backoff.ms", 1000, "Ms a follower waits after a failed fetch.")
REPLICA_SOCKET_TIMEOUT_MS = _int(
    "replica.socket.timeout.ms", 30_000, "Ms a follower waits for a response, in addition to the wait in its request."
)

# The cluster
CLUSTER_URL = _text(
    "cluster.url", "", "Where brokers coordinate: etcd://HOST:PORT[,HOST:PORT...][/PREFIX]; empty for a single broker."
)
ETCD_SSL_CAFILE = _text("etcd.ssl.cafile", "", "A file with CA certificates (PEM), to verify etcd's; empty for no TLS.")
ETCD_SSL_CERTFILE = _text("etcd.ssl.certfile", "", "This broker's certificate (PEM), if etcd requires one.")
ETCD_SSL_KEYFILE = _text("etcd.ssl.keyfile", "", "The key (PEM) of that certificate.")
ETCD_USER = _text("etcd.user", "", "The user name for etcd; empty for no login.")
ETCD_PASSWORD_FILE = _text("etcd.password.file", "", "A file with the password of that user.")
HTTP_TOKEN_FILE = _text(
    "http.token.file", "", "A file with the token that requests over HTTP need; empty for none. Barnabas' own."
)
HTTP_SSL_CERTFILE = _text(
    "http.ssl.certfile", "", "The certificate (PEM) of the page, metrics and health; empty for no TLS. Barnabas' own."
)
HTTP_SSL_KEYFILE = _text(
    "http.ssl.keyfile", "", "The key (PEM) of that certificate; empty if it is in the same file. Barnabas' own."
)
HTTP_SSL_CAFILE = _text(
    "http.ssl.cafile",
    "",
    "CA certificates (PEM): with a client certificate that they have signed, a request over HTTP needs no token. "
    "Barnabas' own.",
)
HTTP_MAX_CONNECTIONS = _int(
    "http.max.connections",
    100,
    "Connections over HTTP at a time; at most a sixteenth of the descriptors of the process (ulimit -n). If there are "
    "more, the one that has carried out no request for longest is closed. Barnabas' own.",
    low=1,
)
# Kafka's default is 9000. This is the shortest lease of etcd, so that a dead leader is replaced in 3 s.
BROKER_SESSION_TIMEOUT_MS = _int(
    "broker.session.timeout.ms", 2000, "Ms without a lease renewal after which a broker is fenced.", 1000
)
BROKER_RACK = _text("broker.rack", "", "The rack of this broker; replicas are spread over racks.")
CONTROLLED_SHUTDOWN_ENABLE = _flag("controlled.shutdown.enable", True, "Hand partitions over before stopping.")
UNCLEAN_LEADER_ELECTION_ENABLE = _flag(
    "unclean.leader.election.enable",
    False,
    "Elect a leader outside of the ISR if all of it is offline: loses records.",
)
UNCLEAN_RECOVERY_TIMEOUT_MS = _long(
    "unclean.recovery.timeout.ms",
    300_000,
    "Ms that a partition waits for its other replicas if all of them stopped uncleanly (KIP-966).",
    0,
)
AUTO_LEADER_REBALANCE_ENABLE = _flag(
    "auto.leader.rebalance.enable", True, "Move leadership back to the preferred replicas periodically."
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = _long(
    "leader.imbalance.check.interval.seconds", 300, "Seconds between two checks whether leadership has to move back.", 1
)

# Topics
NUM_PARTITIONS = _int("num.partitions", 1, "Partitions of a topic that is created without a number.", 1)
DEFAULT_REPLICATION_FACTOR = _int("default.replication.factor", 1, "Replicas of a topic created without a number.", 1)
AUTO_CREATE_TOPICS_ENABLE = _flag("auto.create.topics.enable", True, "Create topics when a client uses them.")
DELETE_TOPIC_ENABLE = _flag("delete.topic.enable", True, "Allow DeleteTopics.")
MIN_INSYNC_REPLICAS = _int("min.insync.replicas", 1, "Replicas in sync that acks=all requires.", 1)
MESSAGE_MAX_BYTES = _int("message.max.bytes", 1_048_588, "The largest record batch, in bytes.")
MESSAGE_MAX_DECOMPRESSED_BYTES = _int(
    "message.max.decompressed.bytes",
    67_108_864,
    "The most bytes to which the broker decompresses the records of one batch; the default is 64 times that of "
    "message.max.bytes. Of a larger batch ListOffsets by timestamp answers the first offset, compaction keeps all "
    "records, and a compacted topic does not accept it; other topics do, because the broker does not look inside. "
    "Barnabas' own.",
    1024,
)
COMPRESSION_TYPE = _broker(
    Key(
        "compression.type",
        ConfigType.STRING,
        "producer",
        _one_of("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
        "The codec of stored batches; batches are stored as producers send them, whatever the value.",
    )
)
MESSAGE_TIMESTAMP_TYPE = _broker(
    Key(
        "log.message.timestamp.type",
        ConfigType.STRING,
        "CreateTime",
        _one_of("CreateTime", "LogAppendTime"),
        "The clock of a record's timestamp: the producer's or the broker's.",
    )
)
MESSAGE_TIMESTAMP_BEFORE_MAX_MS = _long(
    "log.message.timestamp.before.max.ms", LONG_MAX, "How far a timestamp may lie in the past, in ms."
)
MESSAGE_TIMESTAMP_AFTER_MAX_MS = _long(
    "log.message.timestamp.after.max.ms", _HOUR, "How far a timestamp may lie in the future, in ms."
)

# Log
LOG_SEGMENT_BYTES = _int("log.segment.bytes", 1_073_741_824, "Bytes after which a segment is rolled.", 14)
_LOG_ROLL_HOURS = _int("log.roll.hours", 168, "Hours after which a segment is rolled.", 1)
LOG_ROLL_MS = _long("log.roll.ms", 168 * _HOUR, "Ms after which a segment is rolled.", 1, ((_LOG_ROLL_HOURS, _HOUR),))
LOG_INDEX_INTERVAL_BYTES = _int("log.index.interval.bytes", 4096, "Bytes of log between two index entries.")
LOG_INDEX_SIZE_MAX_BYTES = _int("log.index.size.max.bytes", 10_485_760, "Bytes of an offset index at most.", 4)
_LOG_RETENTION_HOURS = _int("log.retention.hours", 168, "Hours that data is kept.", -1)
_LOG_RETENTION_MINUTES = _int("log.retention.minutes", 168 * 60, "Minutes that data is kept.", -1)
LOG_RETENTION_MS = _long(
    "log.retention.ms",
    168 * _HOUR,
    "Ms that data is kept; -1 for ever.",
    -1,
    ((_LOG_RETENTION_MINUTES, 60_000), (_LOG_RETENTION_HOURS, _HOUR)),
)
LOG_RETENTION_BYTES = _long("log.retention.bytes", -1, "Bytes a partition keeps at most; -1 without limit.", -1)
LOG_RETENTION_CHECK_INTERVAL_MS = _long("log.retention.check.interval.ms", 300_000, "Ms between retention checks.", 1)
LOG_SEGMENT_DELETE_DELAY_MS = _long("log.segment.delete.delay.ms", 60_000, "Ms before a removed file is unlinked.")
LOG_CLEANUP_POLICY: Final[Key[tuple[str, ...]]] = _broker(
    Key(
        "log.cleanup.policy",
        ConfigType.LIST,
        ("delete",),
        _list_of("delete", "compact"),
        "What happens to old data: delete, compact, or both; nothing if it is empty.",
    )
)
LOG_CLEANER_ENABLE = _flag("log.cleaner.enable", True, "Compact topics whose policy says so.")
LOG_CLEANER_DELETE_RETENTION_MS = _long("log.cleaner.delete.retention.ms", _DAY, "Ms that tombstones are kept.")
LOG_CLEANER_MIN_COMPACTION_LAG_MS = _long("log.cleaner.min.compaction.lag.ms", 0, "Ms a record stays uncompacted.")
LOG_CLEANER_MAX_COMPACTION_LAG_MS = _long(
    "log.cleaner.max.compaction.lag.ms", LONG_MAX, "Ms after which a record must be looked at for compaction.", 1
)
LOG_CLEANER_MIN_CLEANABLE_RATIO = _broker(
    Key(
        "log.cleaner.min.cleanable.ratio",
        ConfigType.DOUBLE,
        0.5,
        _ratio,
        "Ratio of dirty bytes from which a log is compacted.",
    )
)
LOG_CLEANER_BACKOFF_MS = _long("log.cleaner.backoff.ms", 15_000, "Ms the cleaner waits when there is nothing to clean.")
LOG_CLEANER_IO_MAX_BYTES_PER_SECOND = _broker(
    Key(
        "log.cleaner.io.max.bytes.per.second",
        ConfigType.DOUBLE,
        1.7976931348623157e308,
        float,
        "Bytes a second that the cleaner reads and writes at most.",
    )
)
LOG_FLUSH_INTERVAL_MESSAGES = _long(
    "log.flush.interval.messages",
    LONG_MAX,
    "Records after which a partition is fsynced; 1: before each acknowledgement.",
    1,
)
LOG_FLUSH_INTERVAL_MS = _long("log.flush.interval.ms", LONG_MAX, "Ms after which appended data is fsynced.")
LOG_FLUSH_OFFSET_CHECKPOINT_INTERVAL_MS = _int(
    "log.flush.offset.checkpoint.interval.ms", 60_000, "Ms between recovery point checkpoints."
)
PRODUCER_ID_EXPIRATION_MS = _int("producer.id.expiration.ms", _DAY, "Ms that an idle producer's state is kept.", 1)

# Groups and offsets
OFFSETS_TOPIC_NUM_PARTITIONS = _int("offsets.topic.num.partitions", 50, "Partitions of __consumer_offsets.", 1)
OFFSETS_TOPIC_REPLICATION_FACTOR = _broker(
    Key(
        "offsets.topic.replication.factor",
        ConfigType.SHORT,
        3,
        _integer(1, SHORT_MAX),
        "Replicas of __consumer_offsets.",
    )
)
OFFSETS_TOPIC_SEGMENT_BYTES = _int("offsets.topic.segment.bytes", 104_857_600, "Segment size of __consumer_offsets.", 1)
OFFSETS_RETENTION_MINUTES = _int("offsets.retention.minutes", 10_080, "Minutes offsets outlive their group.", 1)
OFFSETS_RETENTION_CHECK_INTERVAL_MS = _long(
    "offsets.retention.check.interval.ms", 600_000, "Ms between two checks for offsets that expire.", 1
)
OFFSET_METADATA_MAX_BYTES = _int("offset.metadata.max.bytes", 4096, "Bytes of a commit's metadata at most.")
OFFSETS_COMMIT_TIMEOUT_MS = _int("offsets.commit.timeout.ms", 5000, "Ms a commit may take to be in the log.", 1)
GROUP_STUCK_OFFSET_MS = _int(
    "group.stuck.offset.ms",
    300_000,
    "Ms for which the committed offset of a member's partition may stand still while records wait, before an event "
    "says so; a member's own max.poll.interval.ms counts if it is longer, up to 30 min. And for which lag grows "
    "steadily. Barnabas' own.",
    1_000,
)
GROUP_INITIAL_REBALANCE_DELAY_MS = _int(
    "group.initial.rebalance.delay.ms", 3000, "Ms an empty group waits for more members before its first rebalance."
)
GROUP_MIN_SESSION_TIMEOUT_MS = _int("group.min.session.timeout.ms", 6000, "The shortest session timeout, in ms.")
GROUP_MAX_SESSION_TIMEOUT_MS = _int("group.max.session.timeout.ms", 1_800_000, "The longest session timeout, in ms.")
GROUP_MAX_SIZE = _int("group.max.size", INT_MAX, "Members of a group at most.", 1)
GROUP_CONSUMER_SESSION_TIMEOUT_MS = _int(
    "group.consumer.session.timeout.ms", 45_000, "Ms without heartbeats after which a consumer group drops a member.", 1
)
GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS = _int(
    "group.consumer.min.session.timeout.ms", 45_000, "The shortest session timeout of a consumer group, in ms.", 1
)
GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS = _int(
    "group.consumer.max.session.timeout.ms", 60_000, "The longest session timeout of a consumer group, in ms.", 1
)
GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = _int(
    "group.consumer.heartbeat.interval.ms", 5000, "Ms between two heartbeats of a consumer group's member.", 1
)
GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS = _int(
    "group.consumer.min.heartbeat.interval.ms", 5000, "The shortest heartbeat interval of a consumer group, in ms.", 1
)
GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS = _int(
    "group.consumer.max.heartbeat.interval.ms", 15_000, "The longest heartbeat interval of a consumer group, in ms.", 1
)
GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = _int(
    "group.consumer.assignment.interval.ms", 1000, "Ms between two assignments of a consumer group at least."
)
GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS = _int(
    "group.consumer.min.assignment.interval.ms", 0, "The shortest assignment interval of a consumer group, in ms."
)
GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS = _int(
    "group.consumer.max.assignment.interval.ms", 15_000, "The longest assignment interval of a consumer group, in ms."
)
GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS = _int(
    "group.consumer.regex.refresh.interval.ms",
    600_000,
    "Ms after which the regular expressions of a consumer group are matched again, even without new topics.",
    10_000,
)
GROUP_CONSUMER_MAX_SIZE = _int("group.consumer.max.size", INT_MAX, "Members of a consumer group at most.", 1)
GROUP_CONSUMER_MIGRATION_POLICY = _broker(
    Key(
        "group.consumer.migration.policy",
        ConfigType.STRING,
        "bidirectional",
        _one_of_any_case("disabled", "upgrade", "downgrade", "bidirectional"),
        "Whether groups with members change their protocol: a classic group becomes a consumer group when a member of "
        "the consumer protocol joins (upgrade), and classic again when the last one is gone (downgrade); bidirectional "
        "is both. With disabled, members of the classic protocol may not join consumer groups either.",
    )
)
GROUP_SHARE_MAX_SHARE_SESSIONS = _int(
    "group.share.max.share.sessions",
    2000,
    "Share sessions of this broker at most: one for each member.",
    1,
)
GROUP_SHARE_DELIVERY_COUNT_LIMIT = _int(
    "group.share.delivery.count.limit", 5, "Deliveries of a record to a share group before it is archived.", 2, 10
)
GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT = _int(
    "group.share.min.delivery.count.limit", 2, "The smallest delivery limit of a share group.", 2, 5
)
GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT = _int(
    "group.share.max.delivery.count.limit", 10, "The largest delivery limit of a share group.", 5, 25
)
GROUP_SHARE_RECORD_LOCK_DURATION_MS = _int(
    "group.share.record.lock.duration.ms",
    30_000,
    "Ms for which a member may keep a record.",
    1000,
    3_600_000,
)
GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS = _int(
    "group.share.min.record.lock.duration.ms", 15_000, "The shortest lock of a share group, in ms.", 1000, 30_000
)
GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS = _int(
    "group.share.max.record.lock.duration.ms", 60_000, "The longest lock of a share group, in ms.", 30_000, 3_600_000
)
GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS = _int(
    "group.share.partition.max.record.locks",
    2000,
    "Records from the first one that a share group has not processed to the last one that it has received: no more are "
    "delivered from a partition. The last batch may exceed it.",
    100,
    10_000,
)
GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS = _int(
    "group.share.min.partition.max.record.locks",
    100,
    "The fewest record locks of a share group.",
    100,
    2000,
)
GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS = _int(
    "group.share.max.partition.max.record.locks",
    4000,
    "The most record locks of a share group. No more than 4000 count: the state of each record has to be written.",
    2000,
    20_000,
)
DEAD_LETTER_TOPIC_NAME_PREFIX = _text(
    "errors.deadletterqueue.topic.name.prefix", "dlq.", "How the names of topics for dead letters must begin."
)
GROUP_SHARE_SESSION_TIMEOUT_MS = _int(
    "group.share.session.timeout.ms", 45_000, "Ms without heartbeats after which a share group drops a member.", 1
)
GROUP_SHARE_MIN_SESSION_TIMEOUT_MS = _int(
    "group.share.min.session.timeout.ms", 45_000, "The shortest session timeout of a share group, in ms.", 1
)
GROUP_SHARE_MAX_SESSION_TIMEOUT_MS = _int(
    "group.share.max.session.timeout.ms", 60_000, "The longest session timeout of a share group, in ms.", 1
)
GROUP_SHARE_HEARTBEAT_INTERVAL_MS = _int(
    "group.share.heartbeat.interval.ms", 5000, "Ms between two heartbeats of a share group's member.", 1
)
GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS = _int(
    "group.share.min.heartbeat.interval.ms", 5000, "The shortest heartbeat interval of a share group, in ms.", 1
)
GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS = _int(
    "group.share.max.heartbeat.interval.ms", 15_000, "The longest heartbeat interval of a share group, in ms.", 1
)
GROUP_SHARE_MAX_SIZE = _int("group.share.max.size", 200, "Members of a share group at most.", 1, 1000)
#: The keys of groups that two others bound.
GROUP_BOUNDS: Final = (
    (
        GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
        GROUP_CONSUMER_SESSION_TIMEOUT_MS,
        GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    ),
    (
        GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    ),
    (
        GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
        GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS,
        GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    ),
    (GROUP_SHARE_MIN_DELIVERY_COUNT_LIMIT, GROUP_SHARE_DELIVERY_COUNT_LIMIT, GROUP_SHARE_MAX_DELIVERY_COUNT_LIMIT),
    (
        GROUP_SHARE_MIN_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_RECORD_LOCK_DURATION_MS,
        GROUP_SHARE_MAX_RECORD_LOCK_DURATION_MS,
    ),
    (
        GROUP_SHARE_MIN_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS,
        GROUP_SHARE_MAX_PARTITION_MAX_RECORD_LOCKS,
    ),
    (GROUP_SHARE_MIN_SESSION_TIMEOUT_MS, GROUP_SHARE_SESSION_TIMEOUT_MS, GROUP_SHARE_MAX_SESSION_TIMEOUT_MS),
    (GROUP_SHARE_MIN_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_HEARTBEAT_INTERVAL_MS, GROUP_SHARE_MAX_HEARTBEAT_INTERVAL_MS),
)
_uniform_and_range: tuple[str, ...] = ("uniform", "range")
GROUP_CONSUMER_ASSIGNORS = _broker(
    Key(
        "group.consumer.assignors",
        ConfigType.LIST,
        _uniform_and_range,
        _assignors,
        "Assignors that run in the coordinator of consumer groups, the default first.",
    )
)

# Transactions
TRANSACTION_STATE_LOG_NUM_PARTITIONS = _int(
    "transaction.state.log.num.partitions", 50, "Partitions of __transaction_state.", 1
)
TRANSACTION_STATE_LOG_REPLICATION_FACTOR = _broker(
    Key(
        "transaction.state.log.replication.factor",
        ConfigType.SHORT,
        3,
        _integer(1, SHORT_MAX),
        "Replicas of __transaction_state.",
    )
)
TRANSACTION_STATE_LOG_MIN_ISR = _int(
    "transaction.state.log.min.isr", 2, "In-sync replicas that writes to __transaction_state require.", 1
)
TRANSACTION_STATE_LOG_SEGMENT_BYTES = _int(
    "transaction.state.log.segment.bytes", 104_857_600, "Segment size of __transaction_state.", 1
)
TRANSACTION_MAX_TIMEOUT_MS = _int(
    "transaction.max.timeout.ms", 900_000, "The longest timeout of a transaction that clients may ask for, in ms.", 1
)
REQUEST_TIMEOUT_MS = _int(
    "request.timeout.ms",
    30_000,
    "Ms that the requests of transactions between brokers may take, and that markers and the state of a transaction "
    "may take to be replicated.",
    1,
)
TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS = _int(
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
    10_000,
    "Ms between two checks for transactions whose timeout is over.",
    1,
)
TRANSACTION_REMOVE_EXPIRED_TRANSACTION_CLEANUP_INTERVAL_MS = _int(
    "transaction.remove.expired.transaction.cleanup.interval.ms",
    3_600_000,
    "Ms between two checks for transactional ids that expire.",
    1,
)
TRANSACTIONAL_ID_EXPIRATION_MS = _int(
    "transactional.id.expiration.ms", 604_800_000, "Ms after which a transactional id that is not used is deleted.", 1
)
ADD_PARTITIONS_TO_TXN_RETRY_BACKOFF_MAX_MS = _int(
    "add.partitions.to.txn.retry.backoff.max.ms",
    100,
    "Ms that a request waits while the last transaction is being ended; then the client asks again.",
)

# Metrics of clients
TELEMETRY_MAX_BYTES = _int(
    "telemetry.max.bytes", 1024 * 1024, "Largest push of metrics of a client, compressed and decompressed.", 1
)

# Share groups
SHARE_STATE_NUM_PARTITIONS = _int(
    "share.coordinator.state.topic.num.partitions", 50, "Partitions of __share_group_state.", 1
)
SHARE_STATE_REPLICATION_FACTOR = _broker(
    Key(
        "share.coordinator.state.topic.replication.factor",
        ConfigType.SHORT,
        3,
        _integer(1, SHORT_MAX),
        "Replicas of __share_group_state.",
    )
)
SHARE_STATE_MIN_ISR = _broker(
    Key(
        "share.coordinator.state.topic.min.isr",
        ConfigType.SHORT,
        2,
        _integer(1, SHORT_MAX),
        "In-sync replicas that writes to __share_group_state require.",
    )
)
SHARE_STATE_SEGMENT_BYTES = _int(
    "share.coordinator.state.topic.segment.bytes", 104_857_600, "Segment size of __share_group_state.", 1
)
SHARE_STATE_PRUNE_INTERVAL_MS = _int(
    "share.coordinator.state.topic.prune.interval.ms",
    300_000,
    "Ms between two deletions of the records of __share_group_state that later snapshots replace.",
    1,
)
SHARE_COLD_SNAPSHOT_INTERVAL_MS = _int(
    "share.coordinator.cold.partition.snapshot.interval.ms",
    300_000,
    "Ms after which a share partition that is not written gets a new snapshot, so that older records can be deleted.",
    1,
)
SHARE_UPDATES_PER_SNAPSHOT = _int(
    "share.coordinator.snapshot.update.records.per.snapshot",
    500,
    "Records of a share partition's changes between two records of its whole state.",
    0,
    500,
)
SHARE_WRITE_TIMEOUT_MS = _int(
    "share.coordinator.write.timeout.ms", 5000, "Ms that the state of a share partition may take to be replicated.", 1
)

#: Keys with two names, the newer one first. A later source that has either replaces both.
ALIASES: Final[tuple[tuple[Key[Any], Key[Any]], ...]] = ((LOG_DIRS, LOG_DIR), (NODE_ID, BROKER_ID))

#: The limits of connections, which may be changed while the broker runs; some also for one listener.
CONNECTION_KEYS: Final = frozenset(
    key.name
    for key in (
        MAX_CONNECTIONS,
        MAX_CONNECTIONS_PER_IP,
        MAX_CONNECTIONS_PER_IP_OVERRIDES,
        MAX_CONNECTION_CREATION_RATE,
    )
)
CONNECTION_LISTENER_KEYS: Final = frozenset((MAX_CONNECTIONS.name, MAX_CONNECTION_CREATION_RATE.name))

#: Keys that may be changed while the broker runs: those that are read each time they are needed, and limits.
DYNAMIC_KEYS: Final = CONNECTION_KEYS | frozenset(
    name
    for name in BROKER_KEYS
    if name.startswith(("log.", "message.max", "compression.type", "min.insync", "errors.deadletterqueue."))
    and not name.endswith((".hours", ".minutes"))
) - {
    "log.cleaner.enable",
    "log.dir",
    "log.dir.mode",
    "log.dirs",
    "log.flush.offset.checkpoint.interval.ms",
    "log.retention.check.interval.ms",
    "message.max.decompressed.bytes",
}

#: Keys of certificates that may be changed for one listener of one broker, as ``listener.name.NAME.KEY``.
CERTIFICATE_KEYS: Final = frozenset(
    key.name
    for key in (
        SSL_KEYSTORE_TYPE,
        SSL_KEYSTORE_LOCATION,
        SSL_KEYSTORE_CERTIFICATE_CHAIN,
        SSL_KEYSTORE_KEY,
        SSL_KEY_PASSWORD,
        SSL_TRUSTSTORE_TYPE,
        SSL_TRUSTSTORE_LOCATION,
        SSL_TRUSTSTORE_CERTIFICATES,
    )
)
#: All keys that may be changed for one listener.
DYNAMIC_LISTENER_KEYS: Final = CERTIFICATE_KEYS | CONNECTION_LISTENER_KEYS

# Topic keys
CLEANUP_POLICY = _topic("cleanup.policy", LOG_CLEANUP_POLICY)
TOPIC_COMPRESSION_TYPE = _topic("compression.type", COMPRESSION_TYPE)
DELETE_RETENTION_MS = _topic("delete.retention.ms", LOG_CLEANER_DELETE_RETENTION_MS)
FILE_DELETE_DELAY_MS = _topic("file.delete.delay.ms", LOG_SEGMENT_DELETE_DELAY_MS)
FLUSH_MESSAGES = _topic("flush.messages", LOG_FLUSH_INTERVAL_MESSAGES)
FLUSH_MS = _topic("flush.ms", LOG_FLUSH_INTERVAL_MS)
INDEX_INTERVAL_BYTES = _topic("index.interval.bytes", LOG_INDEX_INTERVAL_BYTES)
MAX_COMPACTION_LAG_MS = _topic("max.compaction.lag.ms", LOG_CLEANER_MAX_COMPACTION_LAG_MS)
MAX_MESSAGE_BYTES = _topic("max.message.bytes", MESSAGE_MAX_BYTES)
TIMESTAMP_TYPE = _topic("message.timestamp.type", MESSAGE_TIMESTAMP_TYPE)
TIMESTAMP_BEFORE_MAX_MS = _topic("message.timestamp.before.max.ms", MESSAGE_TIMESTAMP_BEFORE_MAX_MS)
TIMESTAMP_AFTER_MAX_MS = _topic("message.timestamp.after.max.ms", MESSAGE_TIMESTAMP_AFTER_MAX_MS)
MIN_CLEANABLE_DIRTY_RATIO = _topic("min.cleanable.dirty.ratio", LOG_CLEANER_MIN_CLEANABLE_RATIO)
MIN_COMPACTION_LAG_MS = _topic("min.compaction.lag.ms", LOG_CLEANER_MIN_COMPACTION_LAG_MS)
TOPIC_MIN_INSYNC_REPLICAS = _topic("min.insync.replicas", MIN_INSYNC_REPLICAS)
RETENTION_BYTES = _topic("retention.bytes", LOG_RETENTION_BYTES)
RETENTION_MS = _topic("retention.ms", LOG_RETENTION_MS)
SEGMENT_BYTES = _topic("segment.bytes", LOG_SEGMENT_BYTES)
SEGMENT_INDEX_BYTES = _topic("segment.index.bytes", LOG_INDEX_SIZE_MAX_BYTES)
SEGMENT_MS = _topic("segment.ms", LOG_ROLL_MS)
TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE = _topic("unclean.leader.election.enable", UNCLEAN_LEADER_ELECTION_ENABLE)

# Keys of share groups: members
SHARE_SESSION_TIMEOUT_MS = _group("share.session.timeout.ms", GROUP_SHARE_SESSION_TIMEOUT_MS)
SHARE_HEARTBEAT_INTERVAL_MS = _group("share.heartbeat.interval.ms", GROUP_SHARE_HEARTBEAT_INTERVAL_MS)

# Keys of groups of the consumer protocol
CONSUMER_SESSION_TIMEOUT_MS = _group("consumer.session.timeout.ms", GROUP_CONSUMER_SESSION_TIMEOUT_MS)
CONSUMER_HEARTBEAT_INTERVAL_MS = _group("consumer.heartbeat.interval.ms", GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS)
CONSUMER_ASSIGNMENT_INTERVAL_MS = _group("consumer.assignment.interval.ms", GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS)

DEAD_LETTER_GROUP_ENABLE = _topic_only(
    Key(
        "errors.deadletterqueue.group.enable",
        ConfigType.BOOLEAN,
        False,
        _boolean,
        "Whether share groups may write dead letters to the topic.",
    )
)

# Keys of share groups
SHARE_DELIVERY_COUNT_LIMIT = _group("share.delivery.count.limit", GROUP_SHARE_DELIVERY_COUNT_LIMIT)
SHARE_RECORD_LOCK_DURATION_MS = _group("share.record.lock.duration.ms", GROUP_SHARE_RECORD_LOCK_DURATION_MS)
SHARE_PARTITION_MAX_RECORD_LOCKS = _group("share.partition.max.record.locks", GROUP_SHARE_PARTITION_MAX_RECORD_LOCKS)
SHARE_AUTO_OFFSET_RESET = _group_only(
    Key(
        "share.auto.offset.reset",
        ConfigType.STRING,
        "latest",
        _offset_reset,
        "Where a share group begins in a partition that it has not read: latest, earliest, or by_duration:PT1H, an "
        "hour ago for instance.",
    )
)
SHARE_ISOLATION_LEVEL = _group_only(
    Key(
        "share.isolation.level",
        ConfigType.STRING,
        "read_uncommitted",
        _one_of("read_committed", "read_uncommitted"),
        "Whether a share group receives only records of committed transactions, or all.",
    )
)
SHARE_RENEW_ACKNOWLEDGE_ENABLE = _group_only(
    Key(
        "share.renew.acknowledge.enable",
        ConfigType.BOOLEAN,
        True,
        _boolean,
        "Whether members may renew the locks of their records.",
    )
)
DEAD_LETTER_TOPIC = _group_only(
    Key(
        "errors.deadletterqueue.topic.name",
        ConfigType.STRING,
        "",
        str,
        "The topic for records that a share group could not process; without one they are archived only.",
    )
)
DEAD_LETTER_COPY_RECORD = _group_only(
    Key(
        "errors.deadletterqueue.copy.record.enable",
        ConfigType.BOOLEAN,
        False,
        _boolean,
        "Whether dead letters have key, value and headers of the original record.",
    )
)

# Keys of subscriptions to the metrics of clients
CLIENT_METRICS_NAMES: Final[Key[tuple[str, ...]]] = _client_metrics(
    Key(
        "metrics",
        ConfigType.LIST,
        (),
        _distinct,
        "Beginnings of the names of metrics that clients push; * for all. Without any, nothing is pushed.",
    )
)
CLIENT_METRICS_INTERVAL_MS = _client_metrics(
    Key(
        "interval.ms",
        ConfigType.INT,
        300_000,
        _integer(-INT_MAX - 1, INT_MAX),
        "Time between two pushes of a client, from 100 to 3600000.",
    )
)
CLIENT_METRICS_MATCH: Final[Key[tuple[str, ...]]] = _client_metrics(
    Key(
        "match",
        ConfigType.LIST,
        (),
        _distinct,
        "Which clients push: a list of NAME=EXPRESSION that all must match, where NAME is client_id, "
        "client_instance_id, client_software_name, client_software_version, client_source_address or "
        "client_source_port. Without any, all clients.",
    )
)
