"""Users of SCRAM: their credentials are set, described and deleted (KIP-554)."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.language import Ask, Difference, Family, Scenario, ask

#: The brokers of Apache Kafka learn of a change after it was answered.
_SET: Final = {"results.0.error_code": 0}


def _set(name: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"salt of a user") -> dict[str, Any]:
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": salt,
        "salted_password": b"p" * (32 if mechanism == 1 else 64),
    }


def _delete(name: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def _alter(deletions: tuple[dict[str, Any], ...] = (), upsertions: tuple[dict[str, Any], ...] = ()) -> Ask:
    return ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=list(deletions), upsertions=list(upsertions))


def _describe(*names: str, until: dict[str, Any] | None = None) -> Ask:
    users = [{"name": name} for name in names]
    return ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users, until=until or {})


SCENARIOS: Final = (
    Scenario("A user of each mechanism", (_alter((), (_set("$group"), _set("$topic", 2, 16_384))),)),
    Scenario(
        "A user with both mechanisms is described, and deleted",
        (
            _alter((), (_set("$group"),)),
            _alter((), (_set("$group", 2, 8192),)),
            _describe("$group", until={"results.0.credential_infos.length": 2}),
            _alter((), (_set("$group", 1, 5000),)),
            _describe("$group", until={"results.0.credential_infos.0.iterations": 5000}),
            _alter((_delete("$group"),)),
            _describe("$group", until={"results.0.credential_infos.length": 1}),
            _alter((_delete("$group"),)),
            _alter((_delete("$group", 2),)),
            _describe("$group", until={"results.0.error_code": 91}),
        ),
    ),
    Scenario("A user is described twice", (_describe("$group", "$group", "$topic"),)),
    Scenario("A user is changed twice", (_alter((), (_set("$group"), _set("$group", 2))), _describe("$group"))),
    Scenario("A user is changed three times", (_alter((), (_set("$group"), _set("$group"), _set("$group"))),)),
    Scenario("A user is deleted and set", (_alter((_delete("$group"),), (_set("$group"),)), _describe("$group"))),
    Scenario(
        "A user who exists is deleted and set",
        (
            _alter((), (_set("$group"),)),
            _alter((_delete("$group"),), (_set("$group"),)),
            _describe("$group", until=_SET),
        ),
    ),
    Scenario(
        "A change of one user fails, that of another succeeds",
        (_alter((_delete("$topic"),), (_set("$group"),)), _describe("$group", "$topic", until=_SET)),
    ),
    Scenario("Too few iterations", (_alter((), (_set("$group", iterations=4095),)), _describe("$group"))),
    Scenario("Too many iterations", (_alter((), (_set("$group", iterations=16_385),)),)),
    Scenario("A negative number of iterations", (_alter((), (_set("$group", iterations=-1),)),)),
    *(
        Scenario(
            f"The unknown mechanism {code}", (_alter((), (_set("$group", code),)), _alter((_delete("$topic", code),)))
        )
        for code in (0, 3, 127, -1)
    ),
    Scenario("A user without a name", (_alter((), (_set(""),)), _alter((_delete(""),)), _describe(""))),
    Scenario("A salt of no bytes", (_alter((), (_set("$group", salt=b""),)), _describe("$group", until=_SET))),
    Scenario("Nothing is changed", (_alter(),)),
)

DIFFERENCES: Final[tuple[Difference, ...]] = ()

FAMILY: Final = Family("Users of SCRAM", SCENARIOS, DIFFERENCES)
