"""ACLs as JSON: whether there is an authorizer, and who may see them."""

from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.http import cluster as module
from barnabas_client import Admin
from barnabas_client.admin.acls import AclBinding
from barnabas_protocol.acls import AclOperation, AclResourceType
from tests.broker.http.conftest import Http, StartBroker

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


async def test_without_an_authorizer_there_are_no_acls(start_broker: StartBroker, http: Http) -> None:
    await start_broker()
    made = (await http.get("/acls")).json
    assert (made["authorizer"], made["reason"], made["count"], made["acls"]) == (False, None, 0, [])


async def test_a_part_of_many_acls_is_shown(
    start_broker: StartBroker, http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ACLS", 3)
    broker = await start_broker(
        authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS;User:b", allow_everyone_if_no_acl_found="true"
    )
    topic = AclResourceType.TOPIC
    async with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
        await admin.create_acls([AclBinding("User:<a>", AclOperation.READ, topic, f"t{n}") for n in range(5)])
    made = (await http.get("/acls")).json
    assert (made["count"], len(made["acls"])) == (5, 3)
    assert (made["super_users"], made["allow_everyone"]) == (["User:ANONYMOUS", "User:b"], True)
    assert {each["principal"] for each in made["acls"]} == {"User:<a>"}


@pytest.mark.parametrize(
    ("host", "show", "shown"), [("127.0.0.1", False, True), ("0.0.0.0", False, False), ("0.0.0.0", True, True)]
)
async def test_acls_are_shown_where_records_are(tmp_path: Path, http: Http, host: str, show: bool, shown: bool) -> None:
    given: dict[str, Any] = {"log.dir": str(tmp_path), "authorizer.class.name": AUTHORIZER, "super.users": "User:b"}
    broker = await BrokerServer.start(
        Config(BROKER_KEYS, given), port=0, http_host=host, http_port=0, http_show_records=show, http_insecure=True
    )
    http.broker = broker
    try:
        made = (await http.get("/acls")).json
    finally:
        await broker.stop()
    assert made["authorizer"] is True
    assert made["super_users"] == (["User:b"] if shown else None)
    assert (made["reason"] is None) is shown
    assert shown or "--http-show-records" in made["reason"]
