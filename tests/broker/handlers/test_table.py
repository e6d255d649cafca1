"""The table of routes: every declared API has exactly one row; otherwise the broker fails to start."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.errors import BrokerError
from barnabas_broker.handlers import fetch, groups, metadata, security
from barnabas_broker.handlers.dispatch import Dispatch, Route
from barnabas_broker.handlers.table import MODULES, PUBLIC, TableError, join
from barnabas_broker.security.acls import CLUSTER, DESCRIBE, requires
from barnabas_broker.server.connection import Answer, DeferredResponse, Peer
from barnabas_protocol.acls import AclOperation, AclResourceType
from barnabas_protocol.apis import APIS
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.wire import Buffer
from tests.lots import in_lots
from tests.wire import Wire


def module(name: str, *rows: Route) -> ModuleType:
    made = ModuleType(name)
    if rows:
        vars(made)["ROUTES"] = rows
    return made


def row(key: ApiKey) -> Route:
    def handle(context: Any, request: Any) -> None:
        return None

    return Route(key, handle, (requires((DESCRIBE, CLUSTER)),))


def test_every_declared_api_has_a_row() -> None:
    table = join()
    assert set(table) == set(APIS)
    assert {route.key for route in table.values()} == set(APIS)


@in_lots("key", APIS)
def test_served_versions_are_declared(key: ApiKey) -> None:
    served, declared = join()[key].served, api(key).versions
    assert declared.low <= served.low <= served.high == declared.high


@in_lots("key", APIS)
def test_a_missing_row_is_named(key: ApiKey) -> None:
    one = row(key)
    others = module("others", *(row(other) for other in APIS if other is not key))
    with pytest.raises(TableError, match=rf"^{key.name}: no handler has a row for it"):
        join([others])
    assert join([others, module("one", one)])[key] is one


#: Operations that change something.
CHANGING = {AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS}


#: APIs that change nothing here: there is one directory, and the levels of features are fixed.
CHANGES_NOTHING = {ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.UPDATE_FEATURES}


@in_lots("key", APIS)
def test_an_api_that_changes_something_names_what_it_writes_to_the_audit_log(key: ApiKey) -> None:
    route = join()[key]
    operations = {permission.operation for each in route.authorizes for permission in each.any_of}
    if operations & CHANGING and key not in CHANGES_NOTHING:
        assert route.changes, f"state in the row of {key.name} which Change its handler passes to context.changed()"


def test_two_rows_of_an_api_are_named() -> None:
    modules = [module("first", row(ApiKey.FETCH)), module("second", row(ApiKey.FETCH))]
    with pytest.raises(TableError, match=r"^FETCH has two rows: in first and in second"):
        join(modules, [ApiKey.FETCH])


def test_a_row_of_an_api_that_is_not_declared_is_named() -> None:
    with pytest.raises(TableError, match=r"^FETCH has a row in extra, but its messages are not declared"):
        join([module("extra", row(ApiKey.PRODUCE), row(ApiKey.FETCH))], [ApiKey.PRODUCE])


def test_a_module_without_rows_is_named() -> None:
    with pytest.raises(TableError, match=r"^empty has no row"):
        join([module("empty")], [])


@pytest.mark.parametrize(
    ("changed", "rows", "why"),
    [
        (fetch, (), r"^barnabas_broker\.handlers\.fetch has no row"),
        (metadata, metadata.ROUTES[1:], r"^METADATA: no handler has a row for it"),
        (groups, groups.ROUTES[:-1], r"^OFFSET_DELETE: no handler has a row for it"),
        (security, security.ROUTES * 2, r"^SASL_HANDSHAKE has two rows: in barnabas_broker\.handlers\.security"),
    ],
    ids=["module", "first row", "last row", "twice"],
)
async def test_a_broker_with_a_wrong_table_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: ModuleType, rows: tuple[Route, ...], why: str
) -> None:
    monkeypatch.setattr(changed, "ROUTES", rows)
    with pytest.raises(BrokerError, match=why):
        await BrokerServer.start(Config(BROKER_KEYS, {"log.dir": str(tmp_path / "data")}), port=0)
    assert not (tmp_path / "data").exists()


async def test_a_dispatcher_can_be_put_in_front_of_the_handlers(tmp_path: Path) -> None:
    frames: list[bytes] = []

    def wrap(dispatch: Dispatch) -> Any:
        def wrapped(peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
            frames.append(bytes(frame))
            return dispatch(peer, frame)

        return wrapped

    config = Config(BROKER_KEYS, {"log.dir": str(tmp_path / "data")})
    broker = await BrokerServer.start(config, port=0, wrap_dispatcher=wrap)
    try:
        async with await Wire.connect(broker.port) as wire:
            assert (await wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)).api_keys
    finally:
        await broker.stop()
    assert len(frames) == 1


def permissions(key: ApiKey) -> set[tuple[str, ...]]:
    return {tuple(map(str, each.any_of)) for each in join()[key].authorizes}


def test_rows_state_what_kafka_authorizes() -> None:
    assert permissions(ApiKey.PRODUCE) == {("WRITE on TOPIC",), ("WRITE on TRANSACTIONAL_ID",)}
    assert permissions(ApiKey.OFFSET_COMMIT) == {("READ on GROUP",), ("READ on TOPIC",)}
    assert permissions(ApiKey.CREATE_TOPICS) == {
        ("CREATE on CLUSTER", "CREATE on TOPIC"),
        ("DESCRIBE_CONFIGS on TOPIC",),
    }


def test_only_apis_before_authentication_authorize_nothing() -> None:
    assert {key for key, route in join().items() if not route.authorizes} == PUBLIC
    with pytest.raises(TableError, match=r"^FETCH authorizes nothing: state in its row in first what it requires"):
        join([module("first", replace(row(ApiKey.FETCH), authorizes=()))], [ApiKey.FETCH])


@pytest.mark.parametrize("operation", AclOperation)
def test_operations_have_kafkas_codes(operation: AclOperation) -> None:
    names = "UNKNOWN ANY ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS"
    later = ["IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"]
    assert [*names.split(), *later][operation] == operation.name


def test_resource_types_have_kafkas_codes() -> None:
    names = ["UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
    assert [names[each] for each in AclResourceType] == [each.name for each in AclResourceType]


def test_all_handler_modules_with_rows_are_joined() -> None:
    folder = Path(fetch.__file__).parent
    with_rows = {path.stem for path in folder.glob("*.py") if "\nROUTES: Final" in path.read_text("utf-8")}
    assert {module.__name__.rpartition(".")[2] for module in MODULES} == with_rows
