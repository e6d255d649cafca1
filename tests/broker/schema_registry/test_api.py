"""The paths of the registry, as they look from outside."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from barnabas_broker.schema_registry.api import MOST_BYTES
from barnabas_broker.testing import Broker
from tests.wire import PATIENCE

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WITH_NOTE = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string"}]}
TEXT = json.dumps(ORDER, separators=(",", ":"))


def body(schema: Any = ORDER, **more: Any) -> dict[str, Any]:
    return {"schema": json.dumps(schema), **more}


async def call(http: aiohttp.ClientSession, method: str, path: str, given: Any = None) -> tuple[int, Any]:
    data = None if given is None else json.dumps(given)
    async with asyncio.timeout(PATIENCE), http.request(method, path, data=data) as response:
        assert response.headers["Content-Type"] == "application/vnd.schemaregistry.v1+json"
        text = await response.text()
        return response.status, json.loads(text)


async def test_registrations(http: aiohttp.ClientSession) -> None:
    status, first = await call(http, "POST", "/subjects/orders-value/versions", body())
    assert (status, first["version"], first["subject"], first["schema"]) == (200, 1, "orders-value", TEXT)
    id, guid = first["id"], first["guid"]
    assert await call(http, "POST", "/subjects/orders-value/versions?normalize=False", body()) == (200, first)
    assert await call(http, "POST", "/subjects/orders-value", body()) == (200, first)
    assert await call(http, "GET", "/subjects") == (200, ["orders-value"])
    assert await call(http, "GET", "/subjects/orders-value/versions") == (200, [1])
    for version in ("1", "latest", "-1"):
        assert await call(http, "GET", f"/subjects/orders-value/versions/{version}") == (200, first)
    assert await call(http, "GET", "/subjects/orders-value/versions/1/schema") == (200, ORDER)
    assert await call(http, "GET", f"/schemas/ids/{id}?fetchMaxId=true") == (
        200,
        {"schema": TEXT, "guid": guid, "maxId": id},
    )
    assert await call(http, "GET", f"/schemas/ids/{id}/schema") == (200, ORDER)
    assert await call(http, "GET", f"/schemas/ids/{id}/subjects") == (200, ["orders-value"])
    assert await call(http, "GET", f"/schemas/ids/{id}/versions") == (200, [{"subject": "orders-value", "version": 1}])
    assert await call(http, "GET", f"/schemas/guids/{guid}") == (200, {"schema": TEXT, "guid": guid, "id": id})
    assert await call(http, "GET", "/schemas?subjectPrefix=ord&latestOnly=true") == (200, [first])
    assert await call(http, "GET", "/schemas?subjectPrefix=x") == (200, [])
    assert await call(http, "GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
    assert await call(http, "GET", "/contexts") == (200, ["."])
    assert await call(http, "GET", "/") == (200, {})


async def test_a_subject_with_any_characters(http: aiohttp.ClientSession) -> None:
    status, _ = await call(http, "POST", "/subjects/a%2Fb%20%C3%BC/versions", body())
    assert status == 200
    assert await call(http, "GET", "/subjects") == (200, ["a/b ü"])


async def test_lists_in_pages(http: aiohttp.ClientSession) -> None:
    for name in "abc":
        await call(http, "POST", f"/subjects/{name}/versions", body())
    assert await call(http, "GET", "/subjects?offset=1&limit=1") == (200, ["b"])
    assert await call(http, "GET", "/subjects?offset=-5&limit=-1") == (200, ["a", "b", "c"])
    assert await call(http, "GET", "/subjects?limit=many") == (
        422,
        {"error_code": 422, "message": "limit must be a number"},
    )


async def test_what_is_not_compatible(http: aiohttp.ClientSession) -> None:
    await call(http, "POST", "/subjects/orders/versions", body())
    status, said = await call(http, "POST", "/subjects/orders/versions", body(WITH_NOTE))
    assert (status, said["error_code"]) == (409, 40901)
    assert said["message"].startswith(
        'Schema being registered is incompatible with an earlier schema for subject "orders", details: '
    )
    assert "READER_FIELD_MISSING_DEFAULT_VALUE at /fields/1: note" in said["message"]
    status, said = await call(
        http, "POST", "/compatibility/subjects/orders/versions/latest?verbose=True", body(WITH_NOTE)
    )
    assert (status, said["is_compatible"], len(said["messages"])) == (200, False, 1)
    for path in ("orders/versions/1", "orders/versions"):
        assert await call(http, "POST", f"/compatibility/subjects/{path}", body()) == (200, {"is_compatible": True})
    assert await call(http, "POST", "/compatibility/subjects/new/versions/latest", body()) == (
        200,
        {"is_compatible": True},
    )
    status, said = await call(http, "POST", "/compatibility/subjects/new/versions/1", body())
    assert (status, said["error_code"]) == (404, 40401)
    status, said = await call(http, "POST", "/subjects/orders/versions", body({"type": "object"}, schemaType="JSON"))
    assert (status, said["error_code"]) == (409, 40901)


@pytest.mark.parametrize(
    ("level", "statuses"),
    [
        ("NONE", (200, 200)),
        ("BACKWARD", (409, 200)),
        ("FORWARD", (200, 409)),
        ("FULL", (409, 409)),
        ("BACKWARD_TRANSITIVE", (409, 200)),
        ("FORWARD_TRANSITIVE", (200, 409)),
        ("FULL_TRANSITIVE", (409, 409)),
    ],
)
async def test_levels(http: aiohttp.ClientSession, level: str, statuses: tuple[int, int]) -> None:
    """A field that is added without a default, and one that is removed."""
    assert await call(http, "PUT", "/config/grows", {"compatibility": level}) == (200, {"compatibility": level})
    assert await call(http, "PUT", "/config", {"compatibility": level.lower()}) == (200, {"compatibility": level})
    await call(http, "POST", "/subjects/grows/versions", body())
    await call(http, "POST", "/subjects/shrinks/versions", body(WITH_NOTE))
    grown, _ = await call(http, "POST", "/subjects/grows/versions", body(WITH_NOTE))
    shrunk, _ = await call(http, "POST", "/subjects/shrinks/versions", body())
    assert (grown, shrunk) == statuses


async def test_all_versions_count_if_the_level_is_transitive(http: aiohttp.ClientSession) -> None:
    a, b = {"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}
    first, second, third = (
        {**ORDER, "fields": each} for each in ([a], [], [{**a, "type": "string", "default": ""}, b])
    )
    for each in (first, second):
        await call(http, "POST", "/subjects/s/versions", body(each))
    await call(http, "PUT", "/config/s", {"compatibility": "BACKWARD_TRANSITIVE"})
    assert (await call(http, "POST", "/subjects/s/versions", body(third)))[0] == 409
    await call(http, "PUT", "/config/s", {"compatibility": "BACKWARD"})
    assert (await call(http, "POST", "/subjects/s/versions", body(third)))[0] == 200


async def test_levels_and_modes_over_http(http: aiohttp.ClientSession) -> None:
    assert await call(http, "GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    status, said = await call(http, "GET", "/config/s")
    assert (status, said) == (
        404,
        {"error_code": 40408, "message": "Subject 's' does not have subject-level compatibility configured"},
    )
    assert await call(http, "GET", "/config/s?defaultToGlobal=true") == (200, {"compatibilityLevel": "BACKWARD"})
    await call(http, "PUT", "/config/s", {"compatibility": "FULL"})
    assert await call(http, "GET", "/config/s") == (200, {"compatibilityLevel": "FULL"})
    assert await call(http, "DELETE", "/config/s") == (200, {"compatibilityLevel": "FULL"})
    assert await call(http, "DELETE", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert await call(http, "GET", "/mode") == (200, {"mode": "READWRITE"})
    assert await call(http, "PUT", "/mode/s", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    status, said = await call(http, "POST", "/subjects/s/versions", body())
    assert (status, said["error_code"], said["message"]) == (422, 42205, "Subject s is in read-only mode")
    assert await call(http, "DELETE", "/mode/s") == (200, {"mode": "READONLY"})
    await call(http, "PUT", "/mode/s?force=true", {"mode": "IMPORT"})
    status, said = await call(http, "POST", "/subjects/s/versions", body(id=900, version=3))
    assert (status, said["id"], said["version"]) == (200, 900, 3)


async def test_deletion(http: aiohttp.ClientSession) -> None:
    for schema in (ORDER, {**ORDER, "doc": "newer"}):
        await call(http, "POST", "/subjects/s/versions", body(schema))
    assert await call(http, "DELETE", "/subjects/s/versions/1") == (200, 1)
    assert await call(http, "DELETE", "/subjects/s/versions/1?permanent=true") == (200, 1)
    assert await call(http, "DELETE", "/subjects/s") == (200, [2])
    assert await call(http, "GET", "/subjects?deleted=true") == (200, ["s"])
    assert await call(http, "DELETE", "/subjects/s?permanent=true") == (200, [2])
    assert await call(http, "GET", "/subjects/s/versions/2") == (
        404,
        {"error_code": 40401, "message": "Subject 's' not found."},
    )


async def test_references(http: aiohttp.ClientSession) -> None:
    money = {"type": "record", "name": "Money", "fields": []}
    _, used = await call(http, "POST", "/subjects/money/versions", body(money))
    references = [{"name": "Money", "subject": "money", "version": 1}]
    order = {**ORDER, "fields": [{"name": "price", "type": "Money"}]}
    status, said = await call(http, "POST", "/subjects/s/versions", body(order))
    assert (status, said["error_code"]) == (422, 42201)
    status, user = await call(http, "POST", "/subjects/s/versions", body(order, references=references))
    assert (status, user["references"]) == (200, references)
    assert await call(http, "GET", "/subjects/money/versions/1/referencedby") == (200, [user["id"]])
    status, said = await call(http, "DELETE", "/subjects/money/versions/1")
    assert (status, said["error_code"]) == (422, 42206)
    assert used["id"] != user["id"]


async def test_metadata(http: aiohttp.ClientSession) -> None:
    for owner in ("me", "you"):
        metadata = {"properties": {"owner": owner}}
        await call(http, "POST", "/subjects/s/versions", body(metadata=metadata))
    status, found = await call(http, "GET", "/subjects/s/metadata?key=owner&value=me")
    assert (status, found["version"], found["metadata"]) == (200, 1, {"properties": {"owner": "me"}})
    status, found = await call(http, "GET", "/subjects/s/metadata?key=owner&value=nobody")
    assert (status, found["error_code"]) == (404, 40403)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/schemas/ids/7000", 404, 40403),
        ("GET", "/schemas/ids/x", 404, 40403),
        ("GET", "/schemas/guids/x", 404, 40403),
        ("GET", "/subjects/s/versions/0", 422, 42202),
        ("GET", "/subjects/s/versions/9999999999999", 422, 42202),
        ("GET", "/subjects/s/versions/1", 404, 40401),
        ("GET", "/nothing", 404, 404),
        ("PATCH", "/subjects", 405, 405),
    ],
)
async def test_errors(http: aiohttp.ClientSession, method: str, path: str, status: int, code: int) -> None:
    answered, said = await call(http, method, path)
    assert (answered, said["error_code"]) == (status, code)
    assert isinstance(said["message"], str)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b"\xff\xfe", 400),
        (b"[" * 200_000, 400),
        (b'{"schema": ' + b"[" * 200 + b"]" * 200 + b"}", 422),
        (b'{"schema": ' + b"9" * 10_000 + b"}", 400),
        (b'{"schema": "' + b"x" * MOST_BYTES + b'"}', 413),
        (b'{"schema": "\\"int\\"", "id": "one"}', 422),
    ],
)
async def test_hostile_bodies(http: aiohttp.ClientSession, data: bytes, status: int) -> None:
    async with asyncio.timeout(PATIENCE), http.post("/subjects/s/versions", data=data) as response:
        assert response.status == status, await response.text()
        assert "error_code" in await response.json(content_type=None)
    assert await call(http, "GET", "/subjects") == (200, [])


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream"])
async def test_a_page_from_elsewhere_cannot_register(url: str, kind: str) -> None:
    """These a browser sends without asking; it cannot say that they are for another host than it thinks."""
    async with aiohttp.ClientSession(url) as http, asyncio.timeout(PATIENCE):
        async with http.post(
            "/subjects/s/versions", data=json.dumps(body()), headers={"Content-Type": kind}
        ) as refused:
            assert refused.status == 415
        async with http.get("/subjects", headers={"Host": "evil.example"}) as refused:
            assert refused.status == 421


async def test_many_at_once_get_one_version(http: aiohttp.ClientSession) -> None:
    found = await asyncio.gather(*(call(http, "POST", "/subjects/s/versions", body()) for _ in range(10)))
    assert {(status, each["version"]) for status, each in found} == {(200, 1)}
    assert await call(http, "GET", "/subjects/s/versions") == (200, [1])


def test_what_was_registered_is_there_after_a_restart() -> None:
    async def register(url: str) -> Any:
        async with aiohttp.ClientSession(url, headers={"Content-Type": "application/json"}) as http:
            await call(http, "PUT", "/config/s", {"compatibility": "NONE"})
            return await call(http, "POST", "/subjects/s/versions", body())

    async def find(url: str) -> Any:
        async with aiohttp.ClientSession(url, headers={"Content-Type": "application/json"}) as http:
            assert await call(http, "GET", "/config/s") == (200, {"compatibilityLevel": "NONE"})
            return await call(http, "GET", "/subjects/s/versions/1")

    with Broker(process=False) as broker:
        url = broker.serve_schema_registry()
        registered = asyncio.run(register(url))
        broker.append(
            "_schemas", [("no key of a registry", "x"), ('{"keytype":"SCHEMA","subject":"x","version":1}', "{}")]
        )
        broker.restart()
        assert asyncio.run(find(url)) == registered
        broker.stop()
        broker.start()
        assert asyncio.run(find(url)) == registered
        assert broker.serve_schema_registry() == url
