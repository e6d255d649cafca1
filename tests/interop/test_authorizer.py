"""Our authorizer decides as Kafka's StandardAuthorizer, for hundreds of random sets of ACLs.

No broker is needed. A failure names its seed, which generates the same set again.
"""

import base64
import random
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_broker.security.authorizer import Authorizer
from barnabas_broker.security.bindings import AclBinding
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from tests.interop.kafka_server import run_tool

PROGRAM: Final = Path(__file__).with_name("java") / "Authorizations.java"
SETS: Final = 300
QUESTIONS: Final = 40
NAMES: Final = ("a", "ab", "abc", "abd", "b", "ba", "*", "hardcode", "ü")
OPERATIONS: Final = [each for each in AclOperation if each is not AclOperation.ANY]
ASKED: Final = [each for each in OPERATIONS if each is not AclOperation.ALL]
TYPES: Final = (AclResourceType.TOPIC, AclResourceType.GROUP)
PRINCIPALS: Final = ("User:ada", "User:bob", "User:*")
HOSTS: Final = ("*", "10.0.0.7", "10.0.0.8", "0:0:0:0:0:0:0:1")

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("needs_jars")]


def a_binding(dice: random.Random) -> AclBinding:
    return AclBinding(
        dice.choice(TYPES),
        dice.choice(NAMES),
        dice.choice((AclPatternType.LITERAL, AclPatternType.PREFIXED)),
        dice.choice(PRINCIPALS),
        dice.choice(("*", *HOSTS)),
        dice.choice(OPERATIONS),
        dice.choice((AclPermissionType.ALLOW, AclPermissionType.ALLOW, AclPermissionType.DENY)),
    )


def line(*words: Any) -> str:
    first, *rest = words
    return " ".join([first, *(base64.b64encode(str(word).encode()).decode() for word in rest)]) + "\n"


def test_decisions_equal_kafkas() -> None:
    start = random.SystemRandom().getrandbits(32)
    lines: list[str] = []
    expected: list[tuple[bool, str]] = []
    for seed in range(start, start + SETS):
        dice = random.Random(seed)
        everyone = dice.random() < 0.5
        super_user = dice.choice(("", "User:bob"))
        ours = Authorizer({super_user} - {""}, allow_everyone=everyone)
        bindings = {a_binding(dice) for _ in range(dice.choice((0, 1, 2, 4, 10, 30)))}
        ours.change(added=bindings)
        lines.append(line("new", str(everyone).lower(), super_user))
        lines += [
            line(
                "acl",
                each.resource_type.name,
                each.resource_name,
                each.pattern_type.name,
                each.principal,
                each.host,
                each.operation.name,
                each.permission.name,
            )
            for each in sorted(bindings)
        ]
        for _ in range(QUESTIONS):
            principal, host = dice.choice(PRINCIPALS[:2]), dice.choice(HOSTS[1:])
            operation, kind, name = dice.choice(ASKED), dice.choice(TYPES), dice.choice(NAMES)
            if dice.random() < 0.3:
                decided = ours.decide_by_type(principal, host, operation, kind)
                lines.append(line("any", principal, host, operation.name, kind.name))
            else:
                decided = ours.decide(principal, host, operation, kind, name)
                lines.append(line("ask", principal, host, operation.name, kind.name, name))
            what = f"seed {seed}: {principal} {host} {operation.name} {kind.name} {name} in {sorted(bindings)}"
            expected.append((decided, what))
    done = run_tool(str(PROGRAM), timeout=100, stdin="".join(lines))
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [word == "true" for word in done.stdout.split()]
    assert len(answers) == len(expected) == SETS * QUESTIONS
    assert 0.1 < sum(answers) / len(answers) < 0.9
    for answer, (decided, what) in zip(answers, expected, strict=True):
        assert decided is answer, what
