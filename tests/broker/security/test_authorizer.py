"""What principals may do. A model without an index says the same; Apache Kafka's own class is asked in interop."""

import gc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.security import authorizer
from barnabas_broker.security.authorizer import Access, Authorizer, java_address, parse_super_users
from barnabas_broker.security.bindings import AclBinding
from barnabas_broker.security.principals import Principal
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType

READ, WRITE, DESCRIBE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.DELETE
TOPIC, GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
ADA = Principal("User", "ada")
HOST = "10.0.0.7"


def binding(
    name: str,
    operation: AclOperation = READ,
    *,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    pattern: AclPatternType = AclPatternType.LITERAL,
    principal: str = "User:ada",
    host: str = "*",
    resource: AclResourceType = TOPIC,
) -> AclBinding:
    return AclBinding(resource, name, pattern, principal, host, operation, permission)


DENY, PREFIXED = AclPermissionType.DENY, AclPatternType.PREFIXED


def may(bindings: Sequence[AclBinding], operation: AclOperation, name: str, *, allow_everyone: bool = False) -> bool:
    decider = Authorizer(allow_everyone=allow_everyone)
    decider.change(bindings)
    return decider.decide("User:ada", HOST, operation, TOPIC, name)


def test_without_a_binding_nothing_is_allowed() -> None:
    assert not may([], READ, "orders")
    assert not may([binding("orders", resource=GROUP)], READ, "orders")
    assert not may([binding("orders", principal="User:bob")], READ, "orders")


def test_everyone_may_use_what_has_no_binding_if_that_is_set() -> None:
    assert may([], READ, "orders", allow_everyone=True)
    assert may([binding("others", principal="User:bob")], READ, "orders", allow_everyone=True)
    # A binding of any principal, or for all resources, ends that.
    assert not may([binding("orders", principal="User:bob")], READ, "orders", allow_everyone=True)
    assert not may([binding("*", principal="User:bob")], READ, "orders", allow_everyone=True)
    assert not may([binding("ord", pattern=PREFIXED, principal="User:bob")], READ, "orders", allow_everyone=True)


def test_patterns() -> None:
    assert may([binding("orders")], READ, "orders")
    assert not may([binding("orders")], READ, "orders-2")
    assert may([binding("orders", pattern=PREFIXED)], READ, "orders-2")
    assert may([binding("orders", pattern=PREFIXED)], READ, "orders")
    assert not may([binding("orders", pattern=PREFIXED)], READ, "order")
    assert may([binding("*")], READ, "orders")
    assert not may([binding("*", pattern=PREFIXED)], READ, "orders")


def test_a_denial_counts_before_all_that_allow() -> None:
    for pattern, name in ((AclPatternType.LITERAL, "orders"), (AclPatternType.LITERAL, "*"), (PREFIXED, "or")):
        denied = binding(name, permission=DENY, pattern=pattern)
        assert not may([binding("orders"), binding("*", AclOperation.ALL), denied], READ, "orders")
    assert may([binding("orders"), binding("orders", WRITE, permission=DENY)], READ, "orders")
    assert not may([binding("orders"), binding("orders", permission=DENY, principal="User:*")], READ, "orders")


@pytest.mark.parametrize("operation", [READ, WRITE, DELETE, AclOperation.ALTER, AclOperation.ALL])
def test_what_implies_describe(operation: AclOperation) -> None:
    assert may([binding("orders", operation)], DESCRIBE, "orders")
    # Only to be allowed it implies something.
    denied = binding("orders", operation, permission=DENY)
    assert may([binding("orders", DESCRIBE), denied], DESCRIBE, "orders") is (operation is not AclOperation.ALL)


def test_what_implies_describe_configs() -> None:
    assert may([binding("orders", AclOperation.ALTER_CONFIGS)], AclOperation.DESCRIBE_CONFIGS, "orders")
    assert not may([binding("orders", AclOperation.ALTER)], AclOperation.DESCRIBE_CONFIGS, "orders")
    assert not may([binding("orders", AclOperation.ALTER_CONFIGS)], DESCRIBE, "orders")
    assert not may([binding("orders", DESCRIBE)], READ, "orders")


def test_hosts() -> None:
    assert may([binding("orders", host=HOST)], READ, "orders")
    assert not may([binding("orders", host="10.0.0.8")], READ, "orders")
    assert may([binding("orders"), binding("orders", permission=DENY, host="10.0.0.8")], READ, "orders")


def test_super_users_may_do_everything() -> None:
    decider = Authorizer({"User:ada"})
    decider.change([binding("*", AclOperation.ALL, permission=DENY)])
    assert decider.decide("User:ada", HOST, READ, TOPIC, "orders")
    assert decider.decide_by_type("User:ada", HOST, WRITE, TOPIC)
    assert not decider.decide("User:bob", HOST, READ, TOPIC, "orders")


def test_an_operation_on_any_resource_of_a_type() -> None:
    def any_topic(*bindings: AclBinding) -> bool:
        decider = Authorizer()
        decider.change(bindings)
        return decider.decide_by_type("User:ada", HOST, WRITE, TOPIC)

    write, denied = binding("orders", WRITE), binding("orders", WRITE, permission=DENY)
    assert not any_topic()
    assert any_topic(write)
    assert not any_topic(write, denied)
    assert any_topic(write, binding("others", WRITE), denied)
    assert not any_topic(write, binding("or", WRITE, permission=DENY, pattern=PREFIXED))
    assert any_topic(write, binding("orders-2", WRITE, permission=DENY, pattern=PREFIXED))
    assert any_topic(binding("*", WRITE), denied)
    assert not any_topic(write, binding("*", WRITE, permission=DENY))
    assert not any_topic(binding("orders"), binding("orders", WRITE, resource=GROUP), binding("x", WRITE, host="::1"))


# A model that looks at every binding

NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "bab"])
OPERATIONS = st.sampled_from(
    [
        *(READ, WRITE, DESCRIBE, DELETE, AclOperation.ALTER, AclOperation.ALL, AclOperation.ALTER_CONFIGS),
        AclOperation.DESCRIBE_CONFIGS,
    ]
)
PRINCIPALS = st.sampled_from(["User:ada", "User:bob", "User:*"])
HOSTS = st.sampled_from(["*", HOST, "10.0.0.8"])
BINDINGS = st.builds(
    AclBinding,
    st.sampled_from([TOPIC, GROUP]),
    NAMES,
    st.sampled_from([AclPatternType.LITERAL, PREFIXED]),
    PRINCIPALS,
    HOSTS,
    OPERATIONS,
    st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.ALLOW, DENY]),
)
CHANGES = st.lists(st.tuples(st.booleans(), st.lists(BINDINGS, max_size=6)), max_size=8)


def naive(bindings: set[AclBinding], principal: str, operation: AclOperation, name: str, everyone: bool) -> bool:
    """What StandardAuthorizer's documentation says, without an index."""
    of_resource = [
        each
        for each in bindings
        if each.resource_type is TOPIC
        and (
            each.resource_name in ("*", name)
            if each.pattern_type is AclPatternType.LITERAL
            else name.startswith(each.resource_name)
        )
    ]
    mine = [each for each in of_resource if each.principal in (principal, "User:*") and each.host in ("*", HOST)]
    implies = {DESCRIBE: {READ, WRITE, DELETE, AclOperation.ALTER}}
    implies[AclOperation.DESCRIBE_CONFIGS] = {AclOperation.ALTER_CONFIGS}
    if any(each.permission is DENY and each.operation in (operation, AclOperation.ALL) for each in mine):
        return False
    enough = {operation, AclOperation.ALL} | implies.get(operation, set())
    if any(each.permission is not DENY and each.operation in enough for each in mine):
        return True
    return everyone and not of_resource


@given(CHANGES, st.booleans(), st.lists(st.tuples(PRINCIPALS, OPERATIONS, NAMES), min_size=1, max_size=6))
def test_the_index_decides_as_a_look_at_every_binding(
    changes: list[tuple[bool, list[AclBinding]]],
    everyone: bool,
    asked: list[tuple[str, AclOperation, str]],
) -> None:
    decider, present = Authorizer(allow_everyone=everyone), set[AclBinding]()
    for add, bindings in changes:
        if add:
            decider.change(added=bindings)
            present |= set(bindings)
        else:
            decider.change(removed=bindings)
            present -= set(bindings)
        for principal, operation, name in asked:
            if operation is not AclOperation.ALL and principal != "User:*":
                decided = decider.decide(principal, HOST, operation, TOPIC, name)
                assert decided is naive(present, principal, operation, name, everyone)
                access = decider.access(Principal(*principal.split(":")), HOST)
                assert access.allows(operation, TOPIC, name) is decided


@given(st.lists(BINDINGS, max_size=12), st.lists(BINDINGS, max_size=12))
def test_what_is_removed_leaves_nothing_behind(kept: list[AclBinding], gone: list[AclBinding]) -> None:
    decider, fresh = Authorizer(), Authorizer()
    decider.change(added=[*kept, *gone])
    decider.change(removed=[each for each in gone if each not in kept])
    fresh.change(added=kept)
    for kind in (TOPIC, GROUP):
        one, other = decider._resources[kind], fresh._resources[kind]
        assert all(getattr(one, slot) == getattr(other, slot) for slot in type(one).__slots__)


# What is kept


def test_a_change_counts_for_those_that_are_connected() -> None:
    decider = Authorizer()
    access = decider.access(ADA, HOST)
    assert not access.allows(READ, TOPIC, "orders")
    assert not access.allows_any(READ, TOPIC)
    decider.change([binding("orders")])
    assert access.allows(READ, TOPIC, "orders")
    assert access.allows_any(READ, TOPIC)
    decider.change(removed=[binding("orders")])
    assert not access.allows(READ, TOPIC, "orders")


def test_the_connections_of_a_principal_share_their_decisions_while_there_are_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decider = Authorizer()
    access = decider.access(ADA, HOST)
    assert decider.access(ADA, HOST) is access
    assert decider.access(ADA, "10.0.0.8") is not access
    decided: list[str] = []

    def decide(who: str, host: str, operation: AclOperation, resource: AclResourceType, name: str) -> bool:
        decided.append(name)
        return True

    monkeypatch.setattr(decider, "decide", decide)
    for name in ("a", "b", "a"):
        access.allows(READ, TOPIC, name)
    assert decided == ["a", "b"]
    del access
    gc.collect()
    assert len(decider._accesses) == 0


def test_names_of_clients_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer, "MOST_KNOWN", 10)
    access = Access(Authorizer(), ADA, HOST)
    for number in range(100):
        access.allows(READ, TOPIC, f"t{number}")
        assert len(access._known) <= 10


def test_refusals_are_passed_on() -> None:
    refused: list[object] = []
    access = Access(Authorizer(refused=lambda *args: refused.append(args)), ADA, "::1")
    access.allows(READ, TOPIC, "orders")
    access.allows(READ, TOPIC, "orders", audit=False)
    access.allows(READ, TOPIC, "orders")
    assert refused == [(ADA, "0:0:0:0:0:0:0:1", READ, TOPIC, "orders")] * 2


@pytest.mark.parametrize(
    ("address", "java"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff00:42:8329", "2001:db8:0:0:0:ff00:42:8329"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1"),
        ("?", "?"),
    ],
)
def test_addresses_as_java_writes_them(address: str, java: str) -> None:
    assert java_address(address) == java


def test_super_users_of_the_configuration() -> None:
    assert parse_super_users("") == frozenset()
    assert parse_super_users(" User:CN=a,O=b ; User:ada;") == {"User:CN=a,O=b", "User:ada"}
    for wrong in ("ada", "User:", ":ada"):
        with pytest.raises(ValueError, match="must be principals as User:NAME"):
            parse_super_users(wrong)


def test_what_may_be_written_to_is_forgotten_when_the_bindings_change() -> None:
    authorizer = Authorizer()
    binding = AclBinding(
        principal="User:ada",
        host="*",
        operation=AclOperation.WRITE,
        permission=AclPermissionType.ALLOW,
        resource_type=AclResourceType.TOPIC,
        resource_name="orders",
        pattern_type=AclPatternType.LITERAL,
    )
    access = authorizer.access(Principal("User", "ada"), "10.0.0.7")
    assert not access.allows(AclOperation.WRITE, AclResourceType.TOPIC, "orders")
    assert access.writable == set()
    authorizer.change(added=[binding])
    assert access.allows(AclOperation.WRITE, AclResourceType.TOPIC, "orders")
    assert not access.allows(AclOperation.WRITE, AclResourceType.GROUP, "orders")
    assert access.writable == {"orders"}
    authorizer.change(removed=[binding])
    assert access.writable == set()
    assert not access.allows(AclOperation.WRITE, AclResourceType.TOPIC, "orders")
