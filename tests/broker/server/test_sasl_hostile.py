"""Hostile inputs before the authentication: nothing but the exchange is parsed, and no client gets in."""

import gc
import json
import random
import struct
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest

from barnabas_broker.cluster.users import ScramCredentialSet, ScramSecretSet, Users
from barnabas_broker.security.audit import Audit
from barnabas_broker.security.bearer import ClaimNames, Token, TokenRules
from barnabas_broker.security.sasl import PlainUsers
from barnabas_broker.security.scram import ScramCredential
from barnabas_broker.security.tokens import KeySet, check
from barnabas_broker.server.connection import Answer, CloseConnection, DeferredResponse, Peer
from barnabas_broker.server.sasl import REQUESTS, SaslGate, SaslLogin, SaslSettings, ScramDirectory
from barnabas_protocol.codec import encode_request
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.messages.api_versions import ApiVersionsRequest
from barnabas_protocol.messages.metadata import MetadataRequest
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from barnabas_protocol.scram import ScramMechanism
from barnabas_protocol.wire import Buffer
from tests.sampling import slow
from tests.tokens import AUDIENCE, ISSUER, claims, ec_key, first_key, jwk, unsecured

pytestmark = pytest.mark.broad

#: Seconds of processor time that one input may take.
HELD = 0.05

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
#: The time for which tokens are checked; the key of the provider, and one that is not.
NOW = 1_700_000_000
KEY, OTHER = first_key(), ec_key()


def token(key: Any = KEY, algorithm: str = "RS256", kid: str = "first", **changes: Any) -> bytes:
    """The first message of OAUTHBEARER."""
    signed = jwt.encode(claims(now=NOW, **changes), key, algorithm, {"kid": kid})
    return f"n,,\1auth=Bearer {signed}\1\1".encode()


MESSAGES = (
    b"\0ada\0hush",
    b"\0eve\0lovelace",
    b"n,,n=ada,r=nonce",
    b"n,a=ada,n=ada,r=nonce,tokenauth=true",
    b"n,,n=eve,r=" + b"x" * 4000,
    b"c=biws,r=noncebroker,p=AAAA",
    b"c=biws,r=noncebroker,p=" + b"A" * 43 + b"=",
    b"\0" * 1000,
    b"=2C" * 1000,
    b"",
    token(exp=NOW - 1000),
    token(aud="other"),
    token(sub=""),
    token(OTHER, "ES256", "first"),
    token(OTHER, "ES256", "unknown"),
    f"n,,\1auth=Bearer {unsecured(now=NOW)}\1\1".encode(),
    b"n,,\1auth=Bearer " + b"a." * 5000 + b"\1\1",
    b"n,a=eve,\1auth=Bearer x.y.z\1more=" + b"x" * 1000 + b"\1\1",
    b"\1",
)


class Watched:
    """The connection, and what is behind the gate."""

    def __init__(self) -> None:
        self.let_in = 0
        self.passed: list[int] = []

    def end(self) -> None: ...

    def refuse(self, reason: str) -> None: ...

    def authenticated(self, *, again: bool) -> None:
        self.let_in += 1

    def __call__(self, peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
        self.passed.append(struct.unpack_from(">h", frame)[0])
        return []


def frame(request: Request, version: int) -> bytes:
    return bytes(encode_request(request, version, 1, "c"))[4:]


def whole(dice: random.Random) -> bytes:
    """A request that is right in itself."""
    kind = dice.random()
    if kind < 0.4:
        return frame(
            SaslHandshakeRequest(mechanism=dice.choice((*MECHANISMS, "GSSAPI", "", "x" * 300))), dice.randrange(2)
        )
    if kind < 0.8:
        message = dice.choice(MESSAGES)
        return frame(SaslAuthenticateRequest(auth_bytes=message), dice.randrange(3)) if dice.random() < 0.8 else message
    if kind < 0.9:
        return frame(ApiVersionsRequest(client_software_name="c", client_software_version="1"), dice.randrange(5))
    return frame(MetadataRequest(topics=None), 12)


def inputs(dice: random.Random) -> Iterator[bytes]:
    """The frames of one connection, of which some are damaged."""
    for _ in range(dice.randint(1, REQUESTS + 2)):
        data = bytearray(whole(dice))
        damage = dice.random()
        if damage < 0.2:
            del data[dice.randrange(len(data) + 1) :]
        elif damage < 0.4 and data:
            for _ in range(dice.randint(1, 4)):
                data[dice.randrange(len(data))] = dice.randrange(256)
        elif damage < 0.45:
            data += dice.randbytes(dice.randrange(2000))
        elif damage < 0.5:
            data = bytearray(dice.randbytes(dice.randrange(200)))
        yield bytes(data)


@pytest.mark.parametrize("count", [20_000, slow(100_000)])
async def test_hostile_inputs_before_the_login(caplog: pytest.LogCaptureFixture, count: int) -> None:
    caplog.set_level("CRITICAL")
    dice = random.Random(20)
    users = Users().apply_all(
        [ScramSecretSet(b"secret")]
        + [
            ScramCredentialSet("ada", mechanism, ScramCredential.of_password(mechanism, "lovelace", b"salt"))
            for mechanism in ScramMechanism
        ]
    )
    rules = TokenRules((AUDIENCE,), ISSUER, ClaimNames(), 30_000)
    keys = KeySet.of_json(json.dumps({"keys": [jwk(KEY, kid="first")]}).encode())

    def check_token(given: str) -> Token:
        return check(given, keys, rules, NOW * 1000)

    settings = SaslSettings(MECHANISMS, PlainUsers({"ada": "lovelace"}), None, 60.0, 524_288, {})
    login = SaslLogin(settings, ScramDirectory(lambda: users), lambda: 0, Audit(lambda: 0.0), check_token)
    given, worst, outcomes = 0, 0.0, {"closed": 0, "refused": 0, "answered": 0}
    while given < count:
        watched, peer = Watched(), Peer("test", 1)
        gate = SaslGate(login, watched, watched)
        for data in inputs(dice):
            given += 1
            gc.disable()  # the broker bounds the collector's pauses, a test's process does not
            began = time.thread_time()
            try:
                answer = gate(peer, data)
            except (CloseConnection, DecodeError):
                outcomes["closed"] += 1
                break
            finally:
                worst = max(worst, time.thread_time() - began)
                gc.enable()
            if isinstance(answer, DeferredResponse):
                outcomes["refused"] += 1
                assert answer.alone
                break
            outcomes["answered"] += 1
        gate.close()
        assert watched.let_in == 0
        assert set(watched.passed) <= {ApiKey.API_VERSIONS}
        assert len(watched.passed) <= REQUESTS
        assert str(peer.principal) == "User:ANONYMOUS"
    assert worst < HELD
    # Each kind of outcome occurs often, so that the inputs reach all of it.
    assert all(each > count // 50 for each in outcomes.values()), outcomes
