"""Responses that the endpoint of a broker and the console of a cluster have in common. It needs aiohttp."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from html import escape
from itertools import chain
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

from aiohttp import web
from aiohttp.typedefs import Middleware

from barnabas_broker.http.access import AllowedHosts, HttpLogin
from barnabas_broker.http.assets import Asset
from barnabas_broker.http.json_rows import MOST_PARTITIONS, MOST_RECORDS, USUAL_RECORDS
from barnabas_broker.http.text import gather

JSON: Final = "application/json; charset=utf-8"
#: The page loads its own files only, and no script or style that is not one of them.
_POLICY: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
#: Where the form of :data:`_FORM` is sent.
LOGIN_PATH: Final = "/login"
#: The files of the page hold no data.
_FILES: Final = "/page/"
#: Bytes of the form.
_LONGEST_FORM: Final = 16 * 1024
#: Seconds for a body to arrive.
_BODY_SECONDS: Final = 10.0
_FORM_HEADERS: Final = {
    **_POLICY,
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Content-Type": "text/html; charset=utf-8",
    "WWW-Authenticate": "Bearer",
}
_FORM: Final = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Barnabas: log in</title>
<link rel="stylesheet" href="/page/page.css">
<main>
<h1>Barnabas</h1>
<form method="post" action="/login">
<p>{said}</p>
<p><label>Token <input name="token" type="password" autocomplete="current-password" required autofocus></label>
<button>Log in</button></p>
</form>
</main>
</html>
"""
_ASKS: Final = "This page needs the token that the program was started with."
_WRONG: Final = "This is not the token."

#: Digits of a number in a query, which then fits into 64 bits.
_DIGITS: Final = 18

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpRoute(NamedTuple):
    """A path that GET and HEAD requests may be for.

    Attributes:
        path: the path, with names of its variable parts in braces.
        about: what the response has: its line in the response to ``/``.
        answer: answers requests.
        probe: whether requests without the login are answered, without details: the probes of containers have no token.
    """

    path: str
    about: str
    answer: Handler
    probe: bool = False


def about(routes: Iterable[HttpRoute]) -> dict[str, str]:
    """Descriptions of the paths, by path."""
    return {route.path: route.about for route in routes}


def application(
    routes: Sequence[HttpRoute],
    files: Mapping[str, Asset],
    hosts: AllowedHosts,
    login: HttpLogin,
    refused: Callable[[web.Request], None],
    failed: Callable[[web.Request], str],
    *more: Middleware,
    most_bytes: int = _LONGEST_FORM,
) -> web.Application:
    """The application that answers the requests for some routes and for the files of the page.

    Args:
        routes: its paths.
        files: the files of the page.
        hosts: the names that requests may be for.
        login: what requests need.
        refused: called for a request with a wrong token.
        failed: see :func:`plainly`.
        more: middlewares after those that check the request.
        most_bytes: of a request's body.
    """
    probes = frozenset(route.path for route in routes if route.probe)
    checks = plainly(about(routes), failed), only_for(hosts), only_with(login, probes, refused)
    app = web.Application(middlewares=[*checks, *more], client_max_size=most_bytes)
    app.router.add_get(f"{_FILES}{{file}}", page_file(files))
    for route in routes:
        app.router.add_get(route.path, route.answer)
    return app


def plainly(paths: Mapping[str, str], failed: Callable[[web.Request], str]) -> Middleware:
    """Answer every error with one line of JSON.

    Args:
        paths: what is served, for the response to other paths.
        failed: called in the handler of an unexpected exception: logs it, and returns the text of the response.
    """

    @web.middleware
    async def plain(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return as_json({"error": "no such path", "paths": list(paths)}, 404)
        except web.HTTPMethodNotAllowed as error:
            allowed = sorted(error.allowed_methods)
            text = f"only {' and '.join(allowed)} are answered"
            return as_json({"error": text}, 405, {"Allow": ", ".join(allowed)})
        except web.HTTPException as error:
            return as_json({"error": error.reason}, error.status)
        except Exception:
            return as_json({"error": failed(request)}, 500)

    return plain


def only_for(hosts: AllowedHosts) -> Middleware:
    """Refuse what a browser asks on behalf of a page from elsewhere, with 421 (Misdirected Request)."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        why = hosts.refusal(request.headers.getall("Host", []))
        return await handler(request) if why is None else as_json({"error": why}, 421)

    return check


def only_with(login: HttpLogin, probes: Set[str], refused: Callable[[web.Request], None]) -> Middleware:
    """Refuse requests without the login, with 401; a browser gets a form for the token.

    Args:
        login: what requests need.
        probes: the paths whose requests are answered without it, with a status only.
        refused: called for a request with a wrong token.
    """

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.getall("Authorization", [])
        trusted = login.lets_in(given, request.cookies, certificate=_has_certificate(request))
        if trusted and not (login.has_token and request.path == LOGIN_PATH):
            return await handler(request)
        if given and not trusted:
            refused(request)
        if request.path in probes:
            return _status_only(await handler(request))
        if request.path.startswith(_FILES):
            return await handler(request)
        if request.path == LOGIN_PATH and request.method == "POST" and login.has_token:
            if login.knows(await _sent_token(request)):
                return _logged_in(request, login)
            refused(request)
            return _form(_WRONG)
        if "text/html" in request.headers.get("Accept", "") and login.has_token:
            return _form(_ASKS)
        needs = "the token, as Authorization: Bearer TOKEN" if login.has_token else "a client certificate"
        return as_json({"error": f"this needs {needs}"}, 401, {"WWW-Authenticate": "Bearer"})

    return check


def _status_only(response: web.StreamResponse) -> web.StreamResponse:
    """The response of a probe without details."""
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes):
        return response
    return as_json({"status": json.loads(body)["status"]}, response.status)


def _has_certificate(request: web.Request) -> bool:
    """Whether the client has shown a certificate. The handshake fails with one that is not trusted."""
    connection = None if request.transport is None else request.transport.get_extra_info("ssl_object")
    return connection is not None and connection.getpeercert(binary_form=True) is not None


async def _sent_token(request: web.Request) -> str:
    """The token in a form; "" if there is none.

    Raises:
        HTTPRequestEntityTooLarge: the form is too long.
        HTTPRequestTimeout: it does not arrive.
    """
    if request.content_type != "application/x-www-form-urlencoded":
        return ""
    body = await read_body(request, _LONGEST_FORM)
    try:
        fields = parse_qs(body.decode("ascii"), max_num_fields=8)
    except ValueError:
        return ""
    return fields.get("token", [""])[0].strip()


async def read_body(request: web.Request, most: int) -> bytes:
    """The body of a request.

    Args:
        request: the request.
        most: its bytes.

    Raises:
        HTTPRequestEntityTooLarge: it is longer.
        HTTPRequestTimeout: it does not arrive.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.content.iter_any():
                body += chunk
                if len(body) > most:
                    raise web.HTTPRequestEntityTooLarge(most, len(body))
    except TimeoutError:
        raise web.HTTPRequestTimeout from None
    return bytes(body)


def _logged_in(request: web.Request, login: HttpLogin) -> web.Response:
    response = web.Response(status=303, headers={"Location": "/", "Cache-Control": "no-store"})
    response.set_cookie(login.cookie, login.session, path="/", httponly=True, samesite="Strict", secure=request.secure)
    return response


def _form(said: str) -> web.Response:
    return web.Response(text=_FORM.format(said=escape(said)), status=401, headers=_FORM_HEADERS)


def page_file(assets: Mapping[str, Asset]) -> Handler:
    """The handler of ``/page/{file}``."""

    async def answer(request: web.Request) -> web.StreamResponse:
        found = assets.get(request.match_info["file"])
        if found is None:
            raise web.HTTPNotFound
        return file_response(request, found, {"Vary": "Accept-Encoding"})

    return answer


def page_or_paths(request: web.Request, assets: Mapping[str, Asset], about: Mapping[str, Any]) -> web.Response:
    """The response to ``/``: the page for a browser, for other programs what is served."""
    if "text/html" in request.headers.get("Accept", ""):
        return file_response(request, assets["index.html"], {"Vary": "Accept, Accept-Encoding"})
    return as_json(about, 200, {"Vary": "Accept"})


async def send_json(request: web.Request, pieces: Iterable[str]) -> web.StreamResponse:
    """Send a long text of JSON, and the newline that a terminal needs after it."""
    return await send(request, await gather(chain(pieces, "\n"), time.perf_counter), JSON)


async def send(
    request: web.Request, chunks: list[bytes], content_type: str, headers: dict[str, str] | None = None
) -> web.StreamResponse:
    """Send chunks, as fast as the client reads them."""
    response = web.StreamResponse(headers={"Content-Type": content_type, **(headers or {})})
    response.content_length = sum(map(len, chunks))
    await response.prepare(request)
    if request.method != "HEAD":
        for chunk in chunks:
            await response.write(chunk)
    await response.write_eof()
    return response


def file_response(request: web.Request, asset: Asset, headers: Mapping[str, str]) -> web.Response:
    """The response with a file of the page: compressed if the browser can read that, 304 if it has the file."""
    more = {**_POLICY, **headers, "ETag": asset.etag, "Cache-Control": "no-cache"}
    if unchanged(request, asset.etag):
        return web.Response(status=304, headers=more)
    body = asset.plain
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        body = asset.compressed
        more["Content-Encoding"] = "gzip"
    return web.Response(body=body, headers={"Content-Type": asset.content_type, **more})


def unchanged(request: web.Request, etag: str) -> bool:
    """Whether the client has the version with this ETag."""
    return etag in request.headers.get("If-None-Match", "")


def as_json(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """The response with an object."""
    return web.Response(
        body=json.dumps(value).encode() + b"\n", status=status, headers={"Content-Type": JSON, **(headers or {})}
    )


# Queries


class BadQuery(web.HTTPBadRequest):
    """The query of a request cannot be read."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)


class RecordsQuery(NamedTuple):
    """Which records of a topic a request is for.

    Attributes:
        partition: only of this partition; None for all.
        most: at most so many.
        after: the offsets from which on, by partition; None for another choice.
        since: from this time on, in ms since 1970; None for the last ones.
    """

    partition: int | None
    most: int
    after: dict[int, int] | None
    since: int | None


def records_query(request: web.Request) -> RecordsQuery:
    """Read the query of a request for records.

    Raises:
        BadQuery: it cannot be read.
    """
    query = request.query
    return RecordsQuery(
        number_in(request, "partition", 0) if "partition" in query else None,
        min(max(number_in(request, "count", USUAL_RECORDS), 1), MOST_RECORDS),
        _positions(query["after"]) if "after" in query else None,
        number_in(request, "since", 0) if "since" in query else None,
    )


def number_in(request: web.Request, name: str, usual: int) -> int:
    """A number in the query of a request.

    Raises:
        BadQuery: it is not one.
    """
    text = request.query.get(name)
    if text is None:
        return usual
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        unit = "a time in ms since 1970" if name == "since" else "a number"
        raise BadQuery(f"{name}: must be {unit}")
    return int(text)


def _positions(text: str) -> dict[int, int]:
    """Offsets by partition, like "0:17,1:4".

    Raises:
        BadQuery: the text is not of this form.
    """
    pairs = [each.split(":") for each in text.split(",")]
    if len(pairs) > MOST_PARTITIONS or any(
        len(pair) != 2 or not all(part.isascii() and part.isdigit() and len(part) <= _DIGITS for part in pair)
        for pair in pairs
    ):
        raise BadQuery(
            f"after: must be PARTITION:OFFSET, with commas between, for at most {MOST_PARTITIONS} partitions"
        )
    return {int(partition): int(offset) for partition, offset in pairs}
