"""The paths of Confluent's REST API, over HTTP, on a port of their own. It needs aiohttp.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html. Not there: contexts, exporters,
associations and encryption keys. Bodies must have a type of JSON: a browser asks before it sends that on behalf of a
page from elsewhere, and is not allowed to.
"""

import asyncio
import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, closing
from typing import Any, Final, Self

from aiohttp import web

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config.keys import HTTP_MAX_CONNECTIONS
from barnabas_broker.http.access import AllowedHosts
from barnabas_broker.http.responses import Handler, read_body, send
from barnabas_broker.http.serving import HttpServer
from barnabas_broker.http.text import gather
from barnabas_broker.logs import logger
from barnabas_broker.schema_registry.errors import RegistryError, invalid_schema, no_schema
from barnabas_broker.schema_registry.registry import Registry, Version
from barnabas_broker.schema_registry.schemas import TYPES, Schema, as_number, check_depth
from barnabas_broker.schema_registry.service import RegistryService
from barnabas_broker.schema_registry.topic import SchemasTopic
from barnabas_broker.sockets import bind

log = logger("schema_registry")

_JSON: Final = "application/vnd.schemaregistry.v1+json"
_ACCEPTED: Final = (_JSON, "application/vnd.schemaregistry+json", "application/json")
#: Bytes of a body: the topic takes records of a megabyte.
MOST_BYTES: Final = 1_000_000
#: Rows of a list, unless the request says how many.
_MOST_ROWS: Final = 1_000_000


class RegistryServer:
    """A schema registry that answers requests. See :meth:`start`."""

    def __init__(self, stack: AsyncExitStack, port: int, service: RegistryService) -> None:
        self._stack = stack
        self._service = service
        self.port = port

    @classmethod
    async def start(cls, broker: BrokerServer, host: str, port: int) -> Self:
        """Start a registry.

        Args:
            broker: a single broker, in whose topic ``_schemas`` the registry's state is.
            host: the address to listen on.
            port: the port; 0 picks a free one.

        Raises:
            BrokerError: it cannot start.
        """
        async with AsyncExitStack() as unless_started:
            listener = unless_started.enter_context(closing(bind(host, port)))
            service = RegistryService(SchemasTopic(broker))
            await service.load()
            hosts = AllowedHosts([host, socket.gethostname()], None)
            app = web.Application(middlewares=[_answers(hosts)], client_max_size=MOST_BYTES)
            app.add_routes(_Paths(service).routes())
            server = HttpServer(app, listener, None, broker.config[HTTP_MAX_CONNECTIONS], HTTP_MAX_CONNECTIONS.name)
            unless_started.push_async_callback(server.stop)
            await server.start()
            return cls(unless_started.pop_all(), listener.getsockname()[1], service)

    async def clear(self) -> None:
        """Remove all subjects, levels and modes."""
        await self._service.change(lambda registry: (None, registry.clear()))

    async def stop(self) -> None:
        """Stop to answer."""
        await self._stack.aclose()


def _answers(hosts: AllowedHosts) -> Any:
    """Answer errors as Confluent's registry does, and only requests that are for this machine."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = hosts.refusal(request.headers.getall("Host", []))
        if refusal is not None:
            return _error(421, 421, refusal)
        try:
            return await handler(request)
        except RegistryError as error:
            return _error(error.status, error.code, error.message)
        except web.HTTPException as error:
            return _error(error.status, error.status, f"HTTP {error.status} {error.reason}", error.headers)
        except Exception:
            log.exception("request of the schema registry failed", path=request.path)
            return _error(500, 50001, "Internal error, see the broker's log")

    return answer


def _error(status: int, code: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    allowed = {"Allow": headers["Allow"]} if headers is not None and "Allow" in headers else {}
    return _answer({"error_code": code, "message": message}, status, allowed)


def _answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=json.dumps(value).encode(), status=status, headers={"Content-Type": _JSON, **(headers or {})}
    )


async def _answer_list(request: web.Request, rows: Iterable[object]) -> web.StreamResponse:
    """Answer with a list, which may be long."""

    def pieces() -> Iterator[str]:
        yield "["
        for number, row in enumerate(rows):
            yield ("," if number else "") + json.dumps(row)
        yield "]"

    return await send(request, await gather(pieces(), time.perf_counter), _JSON)


def _page(request: web.Request, rows: list[Any]) -> list[Any]:
    """The rows from ``offset`` on, ``limit`` of them."""
    offset, limit = (_integer(request, name, usual) for name, usual in (("offset", 0), ("limit", -1)))
    start = max(offset, 0)
    return rows[start : start + (limit if limit >= 0 else _MOST_ROWS)]


def _integer(request: web.Request, name: str, usual: int) -> int:
    text = request.query.get(name, "")
    try:
        return int(text[:18]) if text else usual
    except ValueError:
        raise RegistryError(422, f"{name} must be a number") from None


def _is(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() == "true"


def _subject(request: web.Request) -> str:
    return request.match_info["subject"]


def _version(request: web.Request) -> int | None:
    """The version in the path; None for the latest.

    Raises:
        RegistryError: it is none.
    """
    text = request.match_info["version"]
    if text in ("latest", "-1"):
        return None
    number = as_number(int(text)) if text.isascii() and text.isdigit() and len(text) <= 10 else None
    if number is None:
        raise RegistryError(
            42202,
            f"The specified version '{text[:100]}' is not a valid version id. "
            'Allowed values are between [1, 2^31-1] and the string "latest"',
        )
    return number


def _id(request: web.Request) -> int:
    text = request.match_info["id"]
    number = as_number(int(text)) if text.isascii() and text.isdigit() and len(text) <= 10 else None
    if number is None:
        raise no_schema(text[:100])
    return number


async def _fields(request: web.Request) -> dict[str, Any]:
    """The object in the body of a request.

    Raises:
        RegistryError: it is none.
        HTTPException: it is too long, or of another type.
    """
    if request.content_type not in _ACCEPTED:
        raise web.HTTPUnsupportedMediaType
    return await asyncio.to_thread(_object, await read_body(request, MOST_BYTES))


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegistryError(400, f"The body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RegistryError(400, "The body is not a JSON object")
    check_depth(value)
    return value


async def _schema(request: web.Request) -> Schema:
    """The schema in the body of a request.

    Raises:
        RegistryError: it is none.
        HTTPException: it is too long, or of another type.
    """
    return await asyncio.to_thread(Schema.of, await _fields(request))


class _Paths:
    """The handlers."""

    def __init__(self, service: RegistryService) -> None:
        self._service = service

    @property
    def _registry(self) -> Registry:
        return self._service.registry

    def routes(self) -> list[web.RouteDef]:
        """All paths."""
        subject, version = "/subjects/{subject}", "/subjects/{subject}/versions/{version}"
        table: list[tuple[str, str, Handler]] = [
            ("GET", "/", self._index),
            ("GET", "/contexts", self._contexts),
            ("GET", "/schemas/types", self._types),
            ("GET", "/schemas", self._schemas),
            ("GET", "/schemas/ids/{id}", self._by_id),
            ("GET", "/schemas/ids/{id}/schema", self._text_by_id),
            ("GET", "/schemas/ids/{id}/subjects", self._subjects_by_id),
            ("GET", "/schemas/ids/{id}/versions", self._versions_by_id),
            ("GET", "/schemas/guids/{guid}", self._by_guid),
            ("GET", "/subjects", self._subjects),
            ("POST", subject, self._lookup),
            ("DELETE", subject, self._delete_subject),
            ("GET", f"{subject}/metadata", self._with_metadata),
            ("GET", f"{subject}/versions", self._versions),
            ("POST", f"{subject}/versions", self._register),
            ("GET", version, self._one),
            ("DELETE", version, self._delete_version),
            ("GET", f"{version}/schema", self._text),
            ("GET", f"{version}/referencedby", self._referenced_by),
            ("POST", f"/compatibility{version}", self._compatible),
            ("POST", f"/compatibility{subject}/versions", self._compatible),
        ]
        for where in ("", "/{subject}"):
            table += [
                ("GET", f"/config{where}", self._level),
                ("PUT", f"/config{where}", self._set_level),
                ("DELETE", f"/config{where}", self._delete_level),
                ("GET", f"/mode{where}", self._mode),
                ("PUT", f"/mode{where}", self._set_mode),
            ]
        table.append(("DELETE", "/mode/{subject}", self._delete_mode))
        return [web.route(method, path, handler) for method, path, handler in table]

    async def _index(self, request: web.Request) -> web.Response:
        return _answer({})

    async def _contexts(self, request: web.Request) -> web.Response:
        return _answer(["."])

    async def _types(self, request: web.Request) -> web.Response:
        return _answer(TYPES)

    # Schemas

    async def _schemas(self, request: web.Request) -> web.StreamResponse:
        found = self._registry.all_versions(
            prefix=request.query.get("subjectPrefix", ""),
            deleted=_is(request, "deleted"),
            latest_only=_is(request, "latestOnly"),
        )
        return await _answer_list(request, (each.fields for each in _page(request, list(found))))

    async def _by_id(self, request: web.Request) -> web.Response:
        found = self._registry.with_id(_id(request))[0]
        more = {"maxId": self._registry.last_id} if _is(request, "fetchMaxId") else {}
        return _answer({**found.schema.fields, "guid": found.schema.guid, **more})

    async def _text_by_id(self, request: web.Request) -> web.Response:
        return _text_of(self._registry.with_id(_id(request))[0])

    def _of_id(self, request: web.Request) -> list[Version]:
        deleted, subject = _is(request, "deleted"), request.query.get("subject")
        found = self._registry.with_id(_id(request))
        return [each for each in found if (deleted or not each.deleted) and subject in (None, "", each.subject)]

    async def _subjects_by_id(self, request: web.Request) -> web.StreamResponse:
        return await _answer_list(request, _page(request, sorted({each.subject for each in self._of_id(request)})))

    async def _versions_by_id(self, request: web.Request) -> web.StreamResponse:
        rows = [{"subject": each.subject, "version": each.version} for each in self._of_id(request)]
        return await _answer_list(request, _page(request, rows))

    async def _by_guid(self, request: web.Request) -> web.Response:
        found = self._registry.with_guid(request.match_info["guid"])[0]
        return _answer({**found.schema.fields, "guid": found.schema.guid, "id": found.id})

    # Subjects

    async def _subjects(self, request: web.Request) -> web.StreamResponse:
        found = self._registry.subjects(
            prefix=request.query.get("subjectPrefix", ""),
            deleted=_is(request, "deleted"),
            deleted_only=_is(request, "deletedOnly") or _is(request, "deleted_only"),
        )
        return await _answer_list(request, _page(request, found))

    async def _lookup(self, request: web.Request) -> web.Response:
        schema = await _schema(request)
        return _answer(self._registry.lookup(_subject(request), schema, deleted=_is(request, "deleted")).fields)

    async def _register(self, request: web.Request) -> web.Response:
        fields = await _fields(request)
        numbers = []
        for name in ("id", "version"):
            given = fields.get(name)
            number = as_number(given)
            if given not in (None, -1, 0) and number is None:
                raise invalid_schema(f"{name} must be a number")
            numbers.append(number)
        schema = await asyncio.to_thread(Schema.of, fields)
        found = await self._service.register(_subject(request), schema, *numbers)
        return _answer(found.fields)

    async def _delete_subject(self, request: web.Request) -> web.Response:
        subject, permanent = _subject(request), _is(request, "permanent")
        deleted = await self._service.change(lambda registry: registry.delete_subject(subject, permanent=permanent))
        return _answer(deleted)

    async def _versions(self, request: web.Request) -> web.StreamResponse:
        found = self._registry.versions(
            _subject(request),
            deleted=_is(request, "deleted"),
            deleted_only=_is(request, "deletedOnly") or _is(request, "deleted_only"),
        )
        return await _answer_list(request, _page(request, [each.version for each in found]))

    def _found(self, request: web.Request) -> Version:
        return self._registry.version(_subject(request), _version(request), deleted=_is(request, "deleted"))

    async def _one(self, request: web.Request) -> web.Response:
        return _answer(self._found(request).fields)

    async def _text(self, request: web.Request) -> web.Response:
        return _text_of(self._found(request))

    async def _referenced_by(self, request: web.Request) -> web.Response:
        return _answer(self._registry.referenced_by(self._found(request)))

    async def _with_metadata(self, request: web.Request) -> web.Response:
        wanted = dict(zip(request.query.getall("key", []), request.query.getall("value", []), strict=False))
        for each in reversed(self._registry.versions(_subject(request), deleted=_is(request, "deleted"))):
            properties = each.schema.fields.get("metadata", {}).get("properties", {})
            if all(properties.get(name) == value for name, value in wanted.items()):
                return _answer(each.fields)
        raise no_schema()

    async def _delete_version(self, request: web.Request) -> web.Response:
        subject, version, permanent = _subject(request), _version(request), _is(request, "permanent")
        deleted = await self._service.change(
            lambda registry: registry.delete_version(subject, version, permanent=permanent)
        )
        return _answer(deleted)

    async def _compatible(self, request: web.Request) -> web.Response:
        all = "version" not in request.match_info
        version = None if all else _version(request)
        found = await self._service.compatible(_subject(request), await _schema(request), version, all=all)
        return _answer({"is_compatible": not found, **({"messages": found} if _is(request, "verbose") else {})})

    # Levels and modes

    async def _level(self, request: web.Request) -> web.Response:
        level = self._registry.level(request.match_info.get("subject"), or_default=_is(request, "defaultToGlobal"))
        return _answer({"compatibilityLevel": level})

    async def _set_level(self, request: web.Request) -> web.Response:
        subject, level = request.match_info.get("subject"), (await _fields(request)).get("compatibility")
        await self._service.change(lambda registry: (None, registry.set_level(subject, level)))
        return _answer({"compatibility": self._registry.level(subject, or_default=True)})

    async def _delete_level(self, request: web.Request) -> web.Response:
        subject = request.match_info.get("subject")
        was = await self._service.change(lambda registry: registry.delete_level(subject))
        return _answer({"compatibilityLevel": was})

    async def _mode(self, request: web.Request) -> web.Response:
        subject = request.match_info.get("subject")
        return _answer({"mode": self._registry.mode(subject, or_default=_is(request, "defaultToGlobal"))})

    async def _set_mode(self, request: web.Request) -> web.Response:
        subject, mode = request.match_info.get("subject"), (await _fields(request)).get("mode")
        force = _is(request, "force")
        await self._service.change(lambda registry: (None, registry.set_mode(subject, mode, force=force)))
        return _answer({"mode": self._registry.mode(subject, or_default=True)})

    async def _delete_mode(self, request: web.Request) -> web.Response:
        subject = _subject(request)
        return _answer({"mode": await self._service.change(lambda registry: registry.delete_mode(subject))})


def _text_of(found: Version) -> web.Response:
    """The text of a schema, without anything around it."""
    return web.Response(body=found.schema.text.encode(), headers={"Content-Type": _JSON})
