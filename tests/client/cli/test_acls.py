"""`barnabas acls`, against a broker with an authorizer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_client import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, AclResourceType, Admin
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.client.cli.conftest import Cli

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
async def acls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[..., Coroutine[Any, Any, Any]]]:
    broker = await BrokerServer.start(Config(BROKER_KEYS, {"log.dir": str(tmp_path), **SETTINGS}), port=0)
    cli = Cli(f"127.0.0.1:{broker.port}", capsys, monkeypatch)

    async def run(*words: str, status: int = 0) -> Any:
        return await cli("acls", words[0], "-b", cli.address, *words[1:], status=status)

    yield run
    await broker.stop()


READ = "ALLOW User:ada from *: READ on TOPIC orders"
WRITE = "ALLOW User:ada from *: WRITE on TOPIC fl (prefix)"
DENIED = "DENY User:* from 10.0.0.7: ALL on GROUP billing"


async def test_add_list_and_remove(acls: Callable[..., Coroutine[Any, Any, Any]]) -> None:
    assert (await acls("list")).lines == []
    added = await acls("add", "User:ada", "--operation", "read", "--topic", "orders")
    assert added.lines == [f"added: {READ}"]
    await acls("add", "User:ada", "--operation", "write", "--topic", "fl", "--prefix")
    await acls("add", "User:*", "--operation", "all", "--group", "billing", "--deny", "--host", "10.0.0.7")
    assert (await acls("list")).lines == [DENIED, WRITE, READ]
    assert (await acls("list", "--principal", "User:ada")).lines == [WRITE, READ]
    assert (await acls("list", "--topic", "flights")).lines == []
    assert (await acls("list", "--topic", "flights", "--applying")).lines == [WRITE]
    assert (await acls("list", "--deny", "--json")).json == [
        {
            "principal": "User:*",
            "permission": "DENY",
            "operation": "ALL",
            "resource_type": "GROUP",
            "resource_name": "billing",
            "pattern_type": "LITERAL",
            "host": "10.0.0.7",
        }
    ]
    dry = await acls("remove", "--principal", "User:ada", "--dry-run")
    assert dry.lines == [f"could be removed: {WRITE}", f"could be removed: {READ}"]
    assert (await acls("remove", "--principal", "User:ada", "--operation", "read")).lines == [f"removed: {READ}"]
    assert (await acls("list")).lines == [DENIED, WRITE]


async def test_what_is_missing_is_named(acls: Callable[..., Coroutine[Any, Any, Any]]) -> None:
    assert "give --topic, --group" in (await acls("add", "User:ada", "--operation", "read", status=2)).err
    assert "give --operation" in (await acls("add", "User:ada", "--topic", "orders", status=2)).err
    assert "must be a principal such as User:ada" in (await acls("add", "ada", "--topic", "t", status=2)).err
    wrong = await acls("add", "User:ada", "--operation", "reed", "--topic", "t", status=2)
    assert "no such operation: 'reed', did you mean" in wrong.err
    assert "this would remove all ACLs" in (await acls("remove", status=2)).err


async def test_the_admin_client(tmp_path: Path) -> None:
    broker = await BrokerServer.start(Config(BROKER_KEYS, {"log.dir": str(tmp_path), **SETTINGS}), port=0)
    try:
        async with Admin(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
            acl = AclBinding("User:ada", AclOperation.READ, AclResourceType.TOPIC, "orders")
            wrong = AclBinding("ada", AclOperation.READ, AclResourceType.TOPIC, "orders")
            results = await admin.create_acls([acl, wrong, acl], raise_errors=False)
            assert [None if one.error is None else one.error.code for one in results] == [
                None,
                ErrorCode.INVALID_REQUEST,
                None,
            ]
            with pytest.raises(KafkaError, match="no colon is present"):
                await admin.create_acls([wrong])
            assert await admin.describe_acls() == [acl]
            denied = AclBindingFilter(permission_type=AclPermissionType.DENY)
            assert await admin.describe_acls(denied) == []
            assert await admin.delete_acls([denied]) == []
            assert [one.acl for one in await admin.delete_acls([AclBindingFilter(principal="User:ada")])] == [acl]
            assert await asyncio.wait_for(admin.describe_acls(), 30) == []
    finally:
        await broker.stop()
