"""Who may read over HTTP: everyone on loopback, elsewhere who has the token or a client certificate."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError
from barnabas_broker.http.access import SHORTEST, HttpLogin, is_loopback, open_to_all, read_token
from tests.certificates import Authority
from tests.wire import PATIENCE

TOKEN: Final = "0123456789abcdef-token"
BEARER: Final = {"Authorization": f"Bearer {TOKEN}"}
BROWSER: Final = {"Accept": "text/html,*/*"}
#: What is answered with the login only.
CLOSED: Final = (
    "/",
    "/metrics",
    "/groups",
    "/groups/g",
    "/groups/g/history",
    "/groups/g/chart",
    "/groups/g/curves",
    "/topics",
    "/topics/t",
    "/topics/t/records",
    "/broker",
    "/transactions",
    "/nothing",
    "/healthz/",
    "/%68ealthz/x",
)

Start = Callable[..., Awaitable[BrokerServer]]


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    return file


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    """Start a broker with HTTP."""
    started: list[BrokerServer] = []

    async def start(host: str = "127.0.0.1", insecure: bool = False, **settings: str) -> BrokerServer:
        given = {"log.dir": str(tmp_path / "data")} | {key.replace("_", "."): text for key, text in settings.items()}
        broker = await BrokerServer.start(
            Config(BROKER_KEYS, given), port=0, http_host=host, http_port=0, http_insecure=insecure
        )
        started.append(broker)
        return broker

    yield start
    for broker in started:
        await broker.stop()


async def ask(
    broker: BrokerServer,
    path: str,
    headers: dict[str, str] | None = None,
    *,
    form: Any = None,
    scheme: str = "http",
    tls: ssl.SSLContext | None = None,
) -> tuple[int, dict[str, str], str]:
    async with (
        asyncio.timeout(PATIENCE),
        aiohttp.ClientSession() as session,
        session.request(
            "GET" if form is None else "POST",
            f"{scheme}://127.0.0.1:{broker.http_port}{path}",
            headers=headers,
            data=form,
            ssl=tls or True,
            allow_redirects=False,
        ) as response,
    ):
        return response.status, dict(response.headers), await response.text()


def test_tokens_are_compared_as_a_whole() -> None:
    login = HttpLogin(TOKEN)
    assert login.required
    for wrong in ("", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "\udcff", TOKEN.replace("0", "O")):
        assert not login.knows(wrong)
        assert not login.lets_in([f"Bearer {wrong}"], {}, certificate=False)
        assert not login.lets_in([], {login.cookie: wrong}, certificate=False)
    assert login.knows(TOKEN)
    assert login.lets_in([f"bearer  {TOKEN} "], {}, certificate=False)
    assert not login.lets_in([f"Basic {TOKEN}"], {}, certificate=False)
    assert not login.lets_in([f"Bearer {TOKEN}"] * 2, {}, certificate=False)
    assert not login.lets_in([], {}, certificate=True)
    assert login.lets_in([], {login.cookie: login.session}, certificate=False)
    assert TOKEN not in f"{login!r} {login.cookie} {login.session}"
    assert HttpLogin("another token of it").cookie != login.cookie


def test_without_a_token_none_is_right() -> None:
    login = HttpLogin(None, certificates=True)
    assert not login.knows("")
    assert not login.lets_in(["Bearer "], {login.cookie: login.session}, certificate=False)
    assert login.lets_in([], {}, certificate=True)
    assert HttpLogin().lets_in([], {}, certificate=False)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"short", f"at least {SHORTEST}"),
        (b"\n" + TOKEN.encode(), f"at least {SHORTEST}"),
        (b"a token with spaces in it", "without spaces"),
        (b"x" * 5000, "at most"),
        ("ä".encode() * 20, "ASCII"),
        (b"\x00" * 32, "without spaces"),
        (None, "cannot be read"),
    ],
)
def test_token_files_that_cannot_be_used(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ValueError, match=why) as raised:
        read_token(str(file))
    assert "spaces in it" not in str(raised.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_login(host: str) -> None:
    assert is_loopback(host)
    assert not open_to_all(host, HttpLogin(), insecure=False, remedies="")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "", "kafka.example.com"])
def test_other_addresses_need_one(host: str) -> None:
    with pytest.raises(ValueError, match=r"open to other machines.*give a token"):
        open_to_all(host, HttpLogin(), insecure=False, remedies="give a token")
    assert open_to_all(host, HttpLogin(), insecure=True, remedies="")
    assert not open_to_all(host, HttpLogin(TOKEN), insecure=False, remedies="")
    with pytest.raises(ValueError, match="one of them"):
        open_to_all(host, HttpLogin(TOKEN), insecure=True, remedies="")


async def test_a_broker_does_not_open_http_to_others_without_a_login(
    start: Start, token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=r"--http-token-file FILE, or .* or --http-insecure"):
        await start("0.0.0.0")
    with pytest.raises(ConfigError, match=r"http\.ssl\.cafile needs http\.ssl\.certfile"):
        await start("0.0.0.0", http_ssl_cafile="ca.pem")
    with pytest.raises(ConfigError, match="cannot be read"):
        await start("0.0.0.0", http_token_file=str(token_file) + "x")
    broker = await start("0.0.0.0", http_token_file=str(token_file))
    assert (await ask(broker, "/metrics"))[0] == 401
    await broker.stop()
    assert "HTTP has no login" not in caplog.text
    broker = await start("0.0.0.0", insecure=True)
    assert (await ask(broker, "/metrics"))[0] == 200
    assert caplog.text.count("HTTP has no login") == 1


async def test_everything_but_probes_needs_the_token(
    start: Start, token_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start(http_token_file=str(token_file))
    for path in CLOSED:
        for headers in ({}, {"Authorization": f"Bearer {TOKEN[:-1]}"}, {"Cookie": "barnabas=x"}):
            status, given, text = await ask(broker, path, headers)
            assert (status, given["WWW-Authenticate"]) == (401, "Bearer"), path
            assert "Bearer TOKEN" in text
        assert (await ask(broker, path, BEARER))[0] != 401, path
    assert (await ask(broker, "/metrics", BEARER))[0] == 200
    lines = [record.msg for record in caplog.records if record.name == "barnabas_broker.audit"]
    assert lines == [{"event": "wrong token", "host": "127.0.0.1"}]
    assert TOKEN[:-1] not in caplog.text


async def test_probes_answer_without_details(start: Start, token_file: Path) -> None:
    broker = await start(http_token_file=str(token_file))
    assert (await ask(broker, "/healthz"))[::2] == (200, '{"status": "ok"}\n')
    assert "version" in (await ask(broker, "/healthz", BEARER))[2]
    assert (await ask(broker, "/readyz"))[::2] == (200, '{"status": "ready"}\n')
    broker.view.conditions.stopping = True
    assert (await ask(broker, "/readyz"))[::2] == (503, '{"status": "not ready"}\n')
    assert "reasons" in (await ask(broker, "/readyz", BEARER))[2]


async def test_a_browser_logs_in_by_a_form(start: Start, token_file: Path) -> None:
    broker = await start(http_token_file=str(token_file))
    status, headers, text = await ask(broker, "/", BROWSER)
    assert (status, headers["Content-Type"]) == (401, "text/html; charset=utf-8")
    assert 'action="/login"' in text
    assert "form-action 'self'" in headers["Content-Security-Policy"]
    assert (await ask(broker, "/page/page.css"))[0] == 200
    status, headers, text = await ask(broker, "/login", BROWSER, form={"token": "wrong"})
    assert (status, "Set-Cookie" in headers) == (401, False)
    assert "not the token" in text
    status, headers, _ = await ask(broker, "/login", form={"token": f" {TOKEN} "})
    assert (status, headers["Location"]) == (303, "/")
    cookie = headers["Set-Cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=Strict"} <= set(cookie.split("; "))
    assert TOKEN not in cookie
    session = {"Cookie": cookie.split(";")[0]}
    status, _, text = await ask(broker, "/", BROWSER | session)
    assert (status, "/page/page.js" in text) == (200, True)
    assert (await ask(broker, "/groups", session))[0] == 200
    assert (await ask(broker, "/groups", session | {"Authorization": "Bearer wrong"}))[0] == 401


@pytest.mark.parametrize("form", [b"x" * 100_000, b"\xff=\xff", b"token=" + b"&token=" * 5000, {"token": "\0"}, b""])
async def test_hostile_forms(start: Start, token_file: Path, form: Any) -> None:
    broker = await start(http_token_file=str(token_file))
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (await ask(broker, "/login", headers, form=form))[0] in (401, 413)
    multipart = aiohttp.FormData({"token": TOKEN}, default_to_multipart=True)
    assert (await ask(broker, "/login", form=multipart))[0] == 401
    assert (await ask(broker, "/metrics", BEARER))[0] == 200


async def test_without_a_token_there_is_no_login(start: Start) -> None:
    broker = await start()
    assert (await ask(broker, "/login", form={"token": ""}))[0] == 404


async def test_a_client_certificate_is_a_login(start: Start, tmp_path: Path, token_file: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    server, client = authority.issue("server"), authority.issue("client", common_name="prometheus")
    broker = await start(
        "0.0.0.0", http_ssl_certfile=str(server), http_ssl_cafile=str(authority.trust), http_token_file=str(token_file)
    )

    def context(certificate: Path | None) -> ssl.SSLContext:
        made = ssl.create_default_context(cafile=str(authority.trust))
        if certificate is not None:
            made.load_cert_chain(certificate)
        return made

    async def get(path: str, certificate: Path | None, headers: dict[str, str] | None = None) -> int:
        return (await ask(broker, path, headers, scheme="https", tls=context(certificate)))[0]

    assert await get("/metrics", client) == 200
    assert await get("/metrics", None) == 401
    assert await get("/metrics", None, BEARER) == 200
    assert await get("/healthz", None) == 200
    with pytest.raises(aiohttp.ClientError):
        await get("/metrics", other.issue("stranger"))
    with pytest.raises(aiohttp.ClientError):
        await ask(broker, "/metrics", BEARER)
    _, headers, _ = await ask(broker, "/login", form={"token": TOKEN}, scheme="https", tls=context(None))
    assert "Secure" in headers["Set-Cookie"].split("; ")
    # A new certificate, and then one that cannot be used.
    authority.issue("server", "127.0.0.1", common_name="new")
    broker.reload_certificates()
    assert await get("/healthz", None) == 200
    server.write_text("nothing")
    broker.reload_certificates()
    assert await get("/healthz", None) == 200


async def test_certificates_that_cannot_be_used(start: Start, tmp_path: Path) -> None:
    server = Authority(tmp_path).issue("server", password="secret")
    with pytest.raises(ConfigError, match=r"http\.ssl: .*server\.pem"):
        await start(http_ssl_certfile=str(server))
    with pytest.raises(ConfigError, match=r"http\.ssl: .*nothing.pem: No such file"):
        await start(http_ssl_certfile=str(tmp_path / "nothing.pem"))
