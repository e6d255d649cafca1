"""SASL: the handshake, the exchange of PLAIN, what comes before and after them, and logins again (KIP-368).

A connection whose name begins with "new" has not logged in.
"""

import struct
from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import when
from tests.interop.behaviour.language import Ask, Difference, Family, Raw, Scenario, Step, ask

_RIGHT: Final = b"\0root\0root"
_ON: Final = "new"
_NEXT: Final = ask(ApiKey.HEARTBEAT, 0, on="next", group_id="$group", generation_id=1, member_id="nobody")


def _shake(version: int = 1, mechanism: str = "PLAIN", on: str = _ON, **how: Any) -> Ask:
    return ask(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism, on=on, **how)


def _say(message: bytes, version: int = 2, on: str = _ON) -> Ask:
    return ask(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=message, on=on)


def _versions(version: int) -> Ask:
    about = when(version >= 3, client_software_name="test", client_software_version="1.0")
    return ask(ApiKey.API_VERSIONS, version, on=_ON, quiet=True, **about)


def _beat(on: str = _ON) -> Ask:
    """A request that is served after the login only."""
    return ask(ApiKey.HEARTBEAT, 0, on=on, group_id="$group", generation_id=1, member_id="nobody")


def _head(key: int, version: int) -> bytes:
    return struct.pack(">hhih4s", key, version, 7, 4, b"test")


def _scenario(name: str, *steps: Step) -> Scenario:
    return Scenario(name, steps, server="secured")


def _closing(name: str, *steps: Step) -> Scenario:
    """After these, the broker serves the next connection."""
    return _scenario(name, *steps, _NEXT)


#: A login again, as soon as the broker takes one.
_AGAIN: Final = (_shake(), _say(_RIGHT), _shake(until={"error_code": 0}))

SCENARIOS: Final = (
    *(_scenario(f"Login: ApiVersions v{v} comes before it", _versions(v), _shake()) for v in range(5)),
    _scenario(
        "Login: ApiVersions of an unknown version, then of a known one",
        Raw(_head(18, 99) + b"\x00\x02a\x02b\x00", on=_ON),
        _versions(3),
        _shake(),
        _say(_RIGHT),
    ),
    *(_scenario(f"Login: handshake v1, exchange v{v}", _shake(), _say(_RIGHT, v), _beat()) for v in (0, 1, 2)),
    _scenario("Login: handshake v0, the exchange without headers", _shake(0), Raw(_RIGHT, on=_ON), _beat()),
    _closing("Login: handshake v0, a wrong password", _shake(0), Raw(b"\0root\0wrong", on=_ON)),
    *(_closing(f"Login: unknown mechanism, v{v}", _shake(v, "SCRAM-SHA-256"), _shake(v)) for v in (0, 1)),
    _closing("Login: an empty mechanism", _shake(1, ""), _shake()),
    _closing("Login: a mechanism in lower case", _shake(1, "plain"), _shake()),
    *(_closing(f"Login: a wrong password, v{v}", _shake(), _say(b"\0root\0wrong", v), _beat()) for v in (0, 1, 2)),
    *(
        _closing(f"Login: {title}", _shake(), _say(message), _beat())
        for title, message in (
            ("an unknown user", b"\0nobody\0root"),
            ("on behalf of another user", b"allowed\0root\0root"),
            ("on behalf of oneself", b"root\0root\0root"),
            ("no message", b""),
            ("no password", b"\0root"),
            ("an empty password", b"\0root\0"),
            ("an empty user", b"\0\0root"),
            ("too many parts", b"\0root\0root\0root"),
        )
    ),
    _closing("Login: Metadata before it", ask(ApiKey.METADATA, 12, on=_ON, topics=[])),
    _closing("Login: Produce before it", ask(ApiKey.PRODUCE, 9, on=_ON, acks=1, timeout_ms=1000)),
    _closing("Login: an API that does not exist before it", Raw(_head(999, 0), on=_ON)),
    _closing("Login: an exchange without a handshake", _say(_RIGHT)),
    _closing("Login: a second handshake before the exchange", _shake(), _shake()),
    _closing("Login: ApiVersions between handshake and exchange", _shake(), _versions(3)),
    _closing("Login: Metadata between handshake and exchange", _shake(), ask(ApiKey.METADATA, 12, on=_ON, topics=[])),
    _closing("Login: a handshake of an unknown version", Raw(_head(17, 2) + b"\x00\x05PLAIN", on=_ON)),
    _closing("Login: an exchange of an unknown version", _shake(), Raw(_head(36, 3) + b"\x00\x01\x00", on=_ON)),
    _closing("Login: a handshake that is cut off", Raw(_head(17, 1) + b"\x00\x05PLA", on=_ON)),
    _closing("Login: an exchange that is cut off", _shake(), Raw(_head(36, 0) + struct.pack(">i", 50) + b"x", on=_ON)),
    _closing("Login: a message of negative size", _shake(), Raw(_head(36, 0) + struct.pack(">i", -5), on=_ON)),
    _closing("Login: an empty frame", Raw(b"", on=_ON)),
    _closing("Login: a frame over sasl.server.max.receive.size", Raw(b"", on=_ON, size=524_289)),
    _scenario(
        "Login: once more at once",
        *(_shake(), _say(_RIGHT), _shake(), _say(_RIGHT), _beat()),
    ),
    _scenario("Login again: with the same password", *_AGAIN, _say(_RIGHT), _beat()),
    _closing("Login again: with a wrong password", *_AGAIN, _say(b"\0root\0wrong"), _beat()),
    _closing("Login again: as another user", *_AGAIN, _say(b"\0allowed\0allowed"), _beat()),
    _closing("Login again: another request in between", *_AGAIN, _beat()),
)

DIFFERENCES: Final = (
    Difference(
        "Another request in the middle of a login closes the connection",
        "Kafka answers ILLEGAL_SASL_STATE first, for which it reads the request. Before the login, Barnabas reads "
        "nothing but ApiVersions, SaslHandshake and SaslAuthenticate.",
        (
            ("Login: ApiVersions between handshake and exchange", "1 API_VERSIONS v3"),
            ("Login: Metadata between handshake and exchange", "1 METADATA v12"),
            ("Login again: another request in between", "3 HEARTBEAT v0"),
        ),
    ),
)

FAMILY: Final = Family("Logins", SCENARIOS, DIFFERENCES)
