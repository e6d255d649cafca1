"""Lists are split into what a client may use and what not: each name is decided and audited once, in steps."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.handlers.authorization import split, take_out, topic_of
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.security import acls
from barnabas_broker.security.authorizer import Authorizer
from barnabas_broker.security.bindings import AclBinding
from barnabas_broker.security.principals import ANONYMOUS
from barnabas_broker.steps import finish
from barnabas_protocol.acls import CLUSTER_NAME, AclOperation, AclPatternType, AclPermissionType, AclResourceType

HOST = "127.0.0.1"


class Client:
    """A client with an authorizer, and what it was refused."""

    def __init__(self, *allowed: tuple[AclResourceType, str, AclOperation]) -> None:
        self.refused: list[str] = []
        self.authorizer = Authorizer(refused=lambda who, host, operation, resource, name: self.refused.append(name))
        literal, allow = AclPatternType.LITERAL, AclPermissionType.ALLOW
        self.authorizer.change(
            [
                AclBinding(kind, name, literal, str(ANONYMOUS), "*", operation, allow)
                for kind, name, operation in allowed
            ]
        )
        self.access = self.authorizer.access(ANONYMOUS, HOST)
        self.context = RequestContext(cast(Any, None), cast(Any, None), 0, "", self.access)

    def split(self, *names: str | None, **options: Any) -> set[str]:
        return set(finish(split(self.context, names, acls.DESCRIBE, acls.TOPIC, **options)))


@pytest.fixture
def client() -> Client:
    return Client((acls.TOPIC, "a", acls.DESCRIBE), (acls.TOPIC, "b", acls.READ))


def test_names_that_a_client_may_not_use_are_found(client: Client) -> None:
    assert client.split("a", "b", "c", "d") == {"c", "d"}


def test_each_distinct_name_is_audited_once(client: Client) -> None:
    assert client.split(*["a", "c"] * 100, None) == {"c"}
    assert client.refused == ["c"]


def test_a_refusal_that_the_client_did_not_ask_for_is_not_audited(client: Client) -> None:
    assert client.split("c", audit=False) == {"c"}
    assert client.refused == []


def test_an_operation_on_the_cluster_allows_all_of_it() -> None:
    client = Client((AclResourceType.CLUSTER, CLUSTER_NAME, acls.CREATE))
    assert client.split("a", unless=acls.CREATE) == set()
    assert client.split("a", unless=acls.DELETE) == {"a"}
    assert client.refused == ["a"]


def test_without_an_authorizer_nothing_is_refused_and_no_name_is_looked_at() -> None:
    context = RequestContext(cast(Any, None), cast(Any, None), 0, "", None)
    names = iter(["a"])
    assert finish(split(context, names, acls.READ)) == set()
    assert list(names) == ["a"]


def test_twenty_names_are_a_step(client: Client) -> None:
    assert sum(1 for _ in split(client.context, map(str, range(1_000)), acls.READ)) == 50
    assert sum(1 for _ in split(client.context, ["c"] * 1_000, acls.READ)) == 50


def test_items_are_taken_out_of_a_list_by_the_names_of_their_topics(client: Client) -> None:
    topics = [SimpleNamespace(name=name, topic_id=name.encode()) for name in "cabc"]
    by_id, items = topic_of({b"a": "a", b"c": "c"}), list(topics)
    assert finish(take_out(client.context, items, by_id, acls.DESCRIBE)) == [topics[0], topics[3]]
    assert items == [topics[1], topics[2]]  # no topic has the id "b"
    items = list(topics)
    assert finish(take_out(client.context, items, topic_of(None), acls.READ)) == [topics[0], topics[1], topics[3]]
    assert items == [topics[2]]
