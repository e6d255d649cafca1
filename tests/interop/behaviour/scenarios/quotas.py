"""Quotas: they are set, described and removed (KIP-546). Who is over one has to wait: tests/interop/test_quotas.py."""

import math
from collections.abc import Sequence
from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.language import Ask, Difference, Family, Scenario, ask

_EXACT, _DEFAULT, _ANY = 0, 1, 2
_Names = Sequence[tuple[str, str | None]]


def _entry(names: _Names, *ops: tuple[str, float | None]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in names],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops],
    }


def _alter(*entries: dict[str, Any], version: int = 1, validate_only: bool = False, quiet: bool = False) -> Ask:
    return ask(ApiKey.ALTER_CLIENT_QUOTAS, version, entries=list(entries), validate_only=validate_only, quiet=quiet)


def _describe(
    *components: tuple[str, int, str | None],
    version: int = 1,
    strict: bool = False,
    until: dict[str, Any] | None = None,
) -> Ask:
    given = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    return ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=given, strict=strict, until=until or {})


_ADA: Final[_Names] = (("user", "$group"),)
_APP: Final[_Names] = (("user", "$group"), ("client-id", "$topic"))
_ANY_APP: Final[_Names] = (("user", "$group"), ("client-id", None))
_ADDRESS: Final[_Names] = (("ip", "192.0.2.7"),)
_PRODUCE: Final = "producer_byte_rate"
_REQUEST: Final = "request_percentage"
_MUTATE: Final = "controller_mutation_rate"
_CREATE: Final = "connection_creation_rate"


def _one(name: str, names: _Names, *ops: tuple[str, float | None]) -> Scenario:
    """A change that may be refused."""
    removal = tuple((key, None) for key in dict.fromkeys(key for key, _ in ops))
    return Scenario(name, (_alter(_entry(names, *ops)), _alter(_entry(names, *removal), quiet=True)))


SCENARIOS: Final = (
    *(
        Scenario(
            f"AlterClientQuotas v{v}: a quota is set, changed and removed",
            (
                _alter(_entry(_ADA, (_PRODUCE, 1024.0), (_REQUEST, 12.5)), version=v),
                _describe(("user", _EXACT, "$group"), version=v, until={"entries.length": 1}),
                _alter(_entry(_ADA, (_PRODUCE, 2048.0), (_REQUEST, None)), version=v),
                _describe(("user", _EXACT, "$group"), version=v, until={"entries.0.values.length": 1}),
                _alter(_entry(_ADA, (_PRODUCE, None)), version=v),
                _describe(("user", _EXACT, "$group"), version=v, until={"entries.length": 0}),
            ),
        )
        for v in (0, 1)
    ),
    Scenario(
        "Quotas are found by filters",
        (
            _alter(_entry(_ADA, (_PRODUCE, 1.0)), _entry(_APP, (_PRODUCE, 2.0)), _entry(_ANY_APP, (_PRODUCE, 3.0))),
            _describe(("user", _EXACT, "$group"), until={"entries.length": 3}),
            _describe(("user", _EXACT, "$group"), strict=True),
            _describe(("user", _EXACT, "$group"), ("client-id", _ANY, None)),
            _describe(("user", _EXACT, "$group"), ("client-id", _DEFAULT, None)),
            _describe(("user", _EXACT, "$group"), ("client-id", _EXACT, "$topic"), strict=True),
            _describe(("client-id", _EXACT, "$topic")),
            _describe(("client-id", _EXACT, "$topic"), strict=True),
            _describe(("user", _EXACT, "$group-b")),
            _describe(("user", _EXACT, "$group"), ("client-id", _EXACT, "$group")),
            _alter(_entry(_ADA, (_PRODUCE, None)), _entry(_APP, (_PRODUCE, None)), _entry(_ANY_APP, (_PRODUCE, None))),
            _describe(("user", _EXACT, "$group"), until={"entries.length": 0}),
        ),
    ),
    Scenario(
        "The quota of an address",
        (
            _alter(_entry(_ADDRESS, (_CREATE, 50.0))),
            _describe(("ip", _EXACT, "192.0.2.7"), until={"entries.length": 1}),
            _alter(_entry(_ADDRESS, (_CREATE, None))),
            _describe(("ip", _EXACT, "192.0.2.7"), until={"entries.length": 0}),
        ),
    ),
    Scenario(
        "A change that is only validated",
        (
            _alter(_entry(_ADA, (_PRODUCE, 5.0)), validate_only=True),
            _alter(_entry(_ADA, (_PRODUCE, 0.0)), validate_only=True),
            _describe(("user", _EXACT, "$group")),
        ),
    ),
    Scenario(
        "One entity of several is refused",
        (
            _alter(_entry(_ADA, (_PRODUCE, 5.0)), _entry(_APP, (_PRODUCE, -5.0)), _entry((), (_PRODUCE, 5.0))),
            _describe(("user", _EXACT, "$group"), until={"entries.length": 1}),
            _alter(_entry(_ADA, (_PRODUCE, None))),
        ),
    ),
    Scenario(
        "One value of several is refused",
        (_alter(_entry(_ADA, (_PRODUCE, 5.0), (_REQUEST, 0.0))), _describe(("user", _EXACT, "$group"))),
    ),
    Scenario(
        "An entity twice",
        (
            _alter(_entry(_ADA, (_PRODUCE, 5.0)), _entry(_ADA, (_PRODUCE, 6.0))),
            _describe(("user", _EXACT, "$group"), until={"entries.length": 1}),
            _alter(_entry(_ADA, (_PRODUCE, None))),
        ),
    ),
    Scenario(
        "A key twice",
        (_alter(_entry(_ADA, (_PRODUCE, 5.0), (_PRODUCE, 5.0))), _describe(("user", _EXACT, "$group"))),
    ),
    Scenario("What is not there is removed", (_alter(_entry(_ADA, (_PRODUCE, None), ("nothing", None))),)),
    Scenario("Nothing is altered", (_alter(), _alter(_entry(_ADA)))),
    *(
        _one(f"The value {value} of {key}", _ADDRESS if key == _CREATE else _ADA, (key, value))
        for key in (_PRODUCE, _REQUEST, _MUTATE, _CREATE)
        for value in (-1.0, -0.0, 1e-9, 0.5, 1.0000001, 2.0**31, 2.0**63, 2.0**64, math.inf, -math.inf, math.nan)
    ),
    _one("An unknown key", _ADA, ("nothing", 5.0)),
    _one("The key of an address for a user", _ADA, (_CREATE, 5.0)),
    _one("The key of a user for an address", _ADDRESS, (_PRODUCE, 5.0)),
    _one("A quota of a user without a name", (("user", ""),), (_PRODUCE, 5.0)),
    _one("An unknown type of entity", (("group", "$group"),), (_PRODUCE, 5.0)),
    _one("A user and an address", (("user", "$group"), ("ip", "192.0.2.7")), (_PRODUCE, 5.0)),
    _one("An address that is a name", (("ip", "localhost"),), (_CREATE, 5.0)),
    _one("An address that is none", (("ip", "192.0.2.999"),), (_CREATE, 5.0)),
    _one("A type twice in an entity", (("user", "$group"), ("user", "$topic")), (_PRODUCE, 5.0)),
    *(
        Scenario(f"A filter with {what}", (_describe(*components),))
        for what, components in {
            "a type without a name": (("", _EXACT, "a"),),
            "an unknown type": (("group", _EXACT, "a"),),
            "a type twice": (("user", _EXACT, "a"), ("user", _ANY, None)),
            "an exact match of null": (("user", _EXACT, None),),
            "a default with a name": (("user", _DEFAULT, "a"),),
            "any with a name": (("user", _ANY, "a"),),
            "an unknown match": (("user", 3, None),),
            "a user and an address": (("user", _ANY, None), ("ip", _ANY, None)),
            "a client and an address": (("client-id", _EXACT, "a"), ("ip", _DEFAULT, None)),
            "an empty name": (("user", _EXACT, ""),),
        }.items()
    ),
)

DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference(
        "The address of a quota is a number.",
        "Apache Kafka also accepts the name of a host, which every broker resolves when it learns of the quota. A "
        "broker that waits for a name server serves no client meanwhile.",
        (("An address that is a name", "*"),),
    ),
)

FAMILY: Final = Family("Quotas", SCENARIOS, DIFFERENCES)
