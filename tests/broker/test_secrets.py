"""Secrets are not in the log at any level, in responses, in metrics, or in the files of the broker."""

import asyncio
import json
import os
import signal
import ssl
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from barnabas_broker.security.sasl import PLAIN_MODULE
from barnabas_client import Admin, Producer, ScramMechanism, UserScramCredentialUpsertion
from barnabas_client.errors import AuthenticationFailedError
from barnabas_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.broker.command import StartCommand, stop
from tests.certificates import Authority
from tests.tokens import TokenMaker, unsecured
from tests.wire import PATIENCE, Wire

#: Each is recognized wherever it stands.
SECRETS: Final = {
    "of a user of PLAIN": "secret-one-plain",
    "of a user of SCRAM": "secret-two-scram",
    "of the first user": "secret-three-first",
    "that is wrong": "secret-four-wrong",
    "of a key": "secret-five-key",
    "salted": "secret-six-salted-password-of-32",
    "token of HTTP": "secret-seven-token-of-http",
    "token that is wrong": "secret-eight-wrong-token",
    "of a dynamic configuration": "secret-nine-configuration",
}
PATHS: Final = ("/", "/metrics", "/broker", "/topics", "/groups", "/healthz", "/readyz", "/transactions", "/nothing")


def password(which: str) -> str:
    return SECRETS[which]


def found(text: bytes) -> list[str]:
    return [which for which, secret in SECRETS.items() if secret.encode() in text]


def private_lines(pem: Path) -> Iterator[bytes]:
    """The lines of a private key, which must not be found either."""
    inside = False
    for line in pem.read_bytes().splitlines():
        if b"PRIVATE KEY" in line:
            inside = b"BEGIN" in line
        elif inside:
            yield line


async def log_in(wire: Wire, mechanism: str, message: str) -> SaslAuthenticateResponse:
    await wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1, SaslHandshakeResponse)
    return await wire.ask(SaslAuthenticateRequest(auth_bytes=message.encode()), 2, SaslAuthenticateResponse)


async def plain(wire: Wire, user: str, secret: str) -> SaslAuthenticateResponse:
    return await log_in(wire, "PLAIN", f"\0{user}\0{secret}")


async def answers_to_tokens(port: int, tokens: Sequence[str]) -> bytes:
    """The responses to logins with tokens: those that are refused are acknowledged, and refused again."""
    seen: list[object] = []
    for token in tokens:
        async with await Wire.connect(port) as wire:
            answer = await log_in(wire, "OAUTHBEARER", f"n,,\1auth=Bearer {token}\1\1")
            seen.append(answer)
            if answer.auth_bytes:
                seen.append(await wire.ask(SaslAuthenticateRequest(auth_bytes=b"\1"), 2, SaslAuthenticateResponse))
    return repr(seen).encode()


async def answers_of_a_client(port: int) -> bytes:
    """The responses to requests that have, or ask for, secrets."""
    seen: list[object] = []
    async with await Wire.connect(port) as wire:
        seen.append(await plain(wire, "ada", password("of a user of PLAIN")))
        resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        for version in (1, 4):  # documentation is asked for from version 3 on
            request = DescribeConfigsRequest(
                resources=[resource], include_synonyms=True, include_documentation=version > 2
            )
            seen.append(await wire.ask(request, version, DescribeConfigsResponse))
        for name in ("plain.sasl.jaas.config", "ssl.key.password", "log.retention.ms", "no.such.key"):
            config = IncrementalAlterableConfig(
                name=name, config_operation=0, value=password("of a dynamic configuration")
            )
            changed = IncrementalAlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
            alter = IncrementalAlterConfigsRequest(resources=[changed], validate_only=False)
            await wire.ask(alter, 1, IncrementalAlterConfigsResponse)  # the client sees what it has sent
        for iterations in (4096, 1):
            one = ScramCredentialUpsertion(
                name="eve", mechanism=1, iterations=iterations, salt=b"salt", salted_password=SECRETS["salted"].encode()
            )
            users = AlterUserScramCredentialsRequest(deletions=[], upsertions=[one])
            seen.append(await wire.ask(users, 0, AlterUserScramCredentialsResponse))
        seen.append(await wire.ask(MetadataRequest(topics=None), 12, MetadataResponse))
    async with await Wire.connect(port) as wire:
        seen.append(await plain(wire, "ada", password("that is wrong")))
    # A password where the broker expects something else.
    async with await Wire.connect(port) as wire:
        message = password("that is wrong").encode() * 50
        wire.writer.write(struct.pack(">i", len(message)) + message)
        with suppress(asyncio.IncompleteReadError, OSError):
            await wire.frame()
    return repr(seen).encode()


async def answers_over_http(port: int) -> bytes:
    seen = b""
    right, wrong = password("token of HTTP"), password("token that is wrong")
    async with asyncio.timeout(PATIENCE), aiohttp.ClientSession() as session:
        for path in PATHS:
            for token in (right, wrong):
                headers = {"Authorization": f"Bearer {token}", "Accept": "text/html"}
                async with session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as response:
                    seen += await response.read() + repr(response.headers).encode()
        for token in (right, wrong):
            async with session.post(
                f"http://127.0.0.1:{port}/login", data={"token": token}, allow_redirects=False
            ) as response:
                seen += await response.read() + repr(response.headers).encode()
    return seen


async def use_scram(port: int, trust: Path) -> None:
    """Log in with the right password and a wrong one, over TLS."""
    login: dict[str, Any] = {
        "bootstrap_servers": f"127.0.0.1:{port}",
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=str(trust)),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "first",
    }
    async with Admin(**login, sasl_plain_password=password("of the first user")) as admin:
        users = [UserScramCredentialUpsertion("bob", ScramMechanism.SCRAM_SHA_512, password("of a user of SCRAM"))]
        await admin.alter_user_scram_credentials(users)
    async with Producer(
        **{**login, "sasl_plain_username": "bob"}, sasl_plain_password=password("of a user of SCRAM")
    ) as producer:
        await producer.send_and_wait("t", b"value")
    with pytest.raises(AuthenticationFailedError) as refused:
        await Producer(**login, sasl_plain_password=password("that is wrong")).start()
    assert found(str(refused.value).encode()) == []


@pytest.mark.parametrize("form", ["console", "json"])
async def test_no_secret_is_written_anywhere(tmp_path: Path, start_command: StartCommand, form: str) -> None:
    authority = Authority(tmp_path)
    key = authority.issue("broker", password=password("of a key"))
    token, first = tmp_path / "token", tmp_path / "first"
    token.write_text(password("token of HTTP"))
    first.write_text(password("of the first user"))
    maker = TokenMaker(tmp_path)
    tokens = [maker.token(), maker.token(seconds=-100), maker.token(aud="other"), unsecured()]
    properties = tmp_path / "server.properties"
    properties.write_text(
        "listeners=INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0,TOKENS://127.0.0.1:0\n"
        "listener.security.protocol.map=INSIDE:SASL_PLAINTEXT,OUTSIDE:SASL_SSL,TOKENS:SASL_PLAINTEXT\n"
        "inter.broker.listener.name=INSIDE\n"
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n"
        f'plain.sasl.jaas.config={PLAIN_MODULE} required user_ada="{password("of a user of PLAIN")}";\n'
        f"ssl.keystore.location={key}\n"
        f"ssl.key.password={password('of a key')}\n"
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "super.users=User:ada;User:first;User:bob\n"
        "connection.failed.authentication.delay.ms=0\n"
        + "".join(f"{key}={value}\n" for key, value in maker.settings("TOKENS").items())
    )
    data = tmp_path / "data"
    flags = ["--config", str(properties), "--add-user", f"first={first}", "--http-port", "0"]
    flags += ["--http-token-file", str(token), "--log-level", "debug", "--log-format", form]
    process = await start_command(data, *flags)
    assert process.stdout is not None
    said = [(await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode() for _ in range(4)]
    inside, outside, with_tokens, http = (int(line.rpartition(":")[2]) for line in said)
    answers = await answers_of_a_client(inside) + await answers_over_http(http)
    to_tokens = await answers_to_tokens(with_tokens, tokens)
    assert to_tokens.count(b"invalid_token") == 2 * (len(tokens) - 1)
    answers += to_tokens
    await use_scram(outside, authority.trust)
    os.kill(process.pid, signal.SIGHUP)
    status, log = await stop(process)
    assert status == 0
    # The test is worth nothing if the broker has not written about all of this.
    for event in ("authenticated", "authentication failed", "user credential set", "wrong token", "user added"):
        assert event in log, event
    assert found(answers) == []
    assert found(log.encode()) == []
    files = [file for file in data.rglob("*") if file.is_file()]
    assert len(files) > 5
    assert {str(file): hits for file in files if (hits := found(file.read_bytes()))} == {}
    written = answers + log.encode() + b"".join(file.read_bytes() for file in files)
    assert not [line for line in private_lines(key) if line in written]
    # The first part of a token says how it is signed; that is no secret.
    assert not [part for token in tokens for part in token.split(".")[1:] if part and part.encode() in written]
    if form == "json":
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        audited = {line["event"] for line in lines if line["logger"] == "barnabas_broker.audit"}
        assert {"authenticated", "authentication failed", "user credential set", "wrong token"} <= audited


def test_secrets_are_found_if_they_are_there() -> None:
    assert found(b"... secret-one-plain ...") == ["of a user of PLAIN"]
