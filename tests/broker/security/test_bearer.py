"""OAUTHBEARER: the messages, the exchange, and tokens without a signature, with hostile input."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.security.bearer import (
    LONGEST_TOKEN,
    ClaimNames,
    FirstMessage,
    Token,
    TokenRefused,
    UnsecuredTokens,
    bearer,
    read,
)
from barnabas_broker.security.sasl import Authenticated, AuthenticationFailed
from barnabas_protocol.sasl import bearer as as_client
from tests.lots import in_lots
from tests.tokens import claims, encoded

NOW = 1_700_000_000_000
NONE = encoded({"alg": "none"})


@in_lots(
    ("message", "found"),
    [
        (b"n,,\x01auth=Bearer a.b.c\x01\x01", FirstMessage("a.b.c", "")),
        (b"n,a=ada,\x01auth=bearer  a.b.c==\x01\x01", FirstMessage("a.b.c==", "ada")),
        (b"n,,\x01traceId=1 2\t3\x01auth=BEARER a\x01logicalCluster=x=y\x01\x01", FirstMessage("a", "")),
        # As in Kafka, the last one counts.
        (b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01", FirstMessage("b", "")),
        (b"n,a=a=2Cb=3Dc,\x01auth=Bearer a\x01\x01", FirstMessage("a", "a=2Cb=3Dc")),
        (b"", None),
        (b"\x01", None),
        (b"n,,\x01\x01", None),
        (b"n,,\x01auth=Bearer a\x01", None),
        (b"n,,\x01auth=Bearer a\x01\x01x", None),
        (b"n,,\x01auth=Bearer \x01\x01", None),
        (b"n,,\x01auth=Basic a\x01\x01", None),
        (b"n,,\x01auth=Bearer a b\x01\x01", None),
        (b"n,,\x01auth=Bearer a=b\x01\x01", None),
        (b"n,,\x01trace=1\x01\x01", None),
        (b"n,,\x01a1=b\x01auth=Bearer a\x01\x01", None),
        (b"n,,\x01a=\x01auth=Bearer a\x01\x01", None),
        (b"y,,\x01auth=Bearer a\x01\x01", None),
        (b"n,a=a=b,\x01auth=Bearer a\x01\x01", None),
        (b"n,a=,\x01auth=Bearer a\x01\x01", None),
        ("n,,\x01x=é\x01auth=Bearer a\x01\x01".encode(), None),
        (b"n,,\x01x=\xff\x01auth=Bearer a\x01\x01", None),
    ],
)
def test_messages_of_clients(message: bytes, found: FirstMessage | None) -> None:
    assert read(message) == found


@given(
    token=st.from_regex(r"[-_~+/.a-zA-Z0-9]+=*", fullmatch=True),
    extensions=st.dictionaries(
        st.from_regex(r"[A-Za-z]+", fullmatch=True).filter(lambda name: name != "auth"),
        st.from_regex(r"[\x21-\x7e \t\r\n]+", fullmatch=True),
    ),
)
def test_what_this_client_sends_is_read(token: str, extensions: dict[str, str]) -> None:
    assert read(next(as_client(token, extensions))) == FirstMessage(token, "")


@given(message=st.binary() | st.text(alphabet="n,a=\x01uthBer .").map(str.encode))
def test_any_message_is_read_or_refused(message: bytes) -> None:
    read(message)


def test_a_long_message_is_refused_in_no_time() -> None:
    for part in (b"a=", b"a", b"=", b"\x01", b"=2C", b",", b" ", b"auth=Bearer "):
        assert read(b"n,a=" + part * 100_000) is None
        assert read(b"n,,\x01" + part * 100_000) is None


def accepts(token: str) -> Token:
    return Token("ada", NOW)


def run(check: Any, *messages: bytes) -> tuple[list[bytes], Authenticated]:
    exchange = bearer(check)
    answers = [next(exchange)]
    try:
        for message in messages:
            answers.append(exchange.send(message))
    except StopIteration as done:
        return answers, done.value
    raise AssertionError(answers)


def test_the_exchange() -> None:
    assert run(accepts, b"n,,\x01auth=Bearer a\x01\x01") == ([b""], Authenticated("ada", b"", NOW))
    assert run(accepts, b"n,a=ada,\x01auth=Bearer a\x01\x01")[1].user == "ada"


@pytest.mark.parametrize("last", [b"\x01", b"", b"n,,\x01auth=Bearer right\x01\x01"])
@pytest.mark.parametrize(
    ("missing", "told"),
    [
        ("", '{"status":"invalid_token"}'),
        ("[read, write]", '{"status":"insufficient_scope", "scope":"[read, write]"}'),
    ],
)
def test_a_token_that_is_refused(missing: str, told: str, last: bytes) -> None:
    def refuses(token: str) -> Token:
        raise TokenRefused("its signature is wrong", missing)

    exchange = bearer(refuses)
    next(exchange)
    assert exchange.send(b"n,,\x01auth=Bearer hush\x01\x01").decode() == told
    json.loads(told)
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.send(last)
    assert (str(failed.value), failed.value.reason) == (told, "its signature is wrong")


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b"hush", "due to invalid credentials with SASL mechanism OAUTHBEARER"),
        (
            b"n,a=eve,\x01auth=Bearer hush\x01\x01",
            r"requested an authorization id \(eve\) that is different from the token's principal name \(ada\)",
        ),
        (b"n,a=" + b"e" * 100_000 + b",\x01auth=Bearer hush\x01\x01", r"id \(e{100}\) that"),
    ],
)
def test_what_fails_at_once(message: bytes, said: str) -> None:
    exchange = bearer(accepts)
    next(exchange)
    with pytest.raises(AuthenticationFailed, match=said) as failed:
        exchange.send(message)
    assert "hush" not in str(failed.value)


def none(changes: dict[str, Any]) -> str:
    return f"{NONE}.{encoded(claims(now=NOW / 1000, **changes))}."


READS = UnsecuredTokens(ClaimNames(), ("read", "write"), 1000, lambda: NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"scope": ["read", "write", "more"]},
        {"scope": ["read", " write "], "iat": None},
        {"scope": ["read", "write"], "iat": NOW / 1000 + 0.9},
        {"scope": ["read", "write"], "nbf": NOW / 1000 + 0.9},
    ],
)
def test_tokens_without_a_signature(changes: dict[str, Any]) -> None:
    assert READS(none(changes)) == Token("ada", NOW + 300_000)


def test_the_claims_may_have_other_names() -> None:
    reads = UnsecuredTokens(ClaimNames("name", "scp"), ("read",), 0, lambda: NOW)
    assert reads(none({"sub": None, "name": " zoë ", "scp": "read"})).user == "zoë"


@in_lots(
    ("changes", "said", "missing"),
    [
        ({}, "it lacks the scope read", "[read, write]"),
        ({"scope": "read"}, "it lacks the scope write", "[read, write]"),
        ({"scope": ["read", "write", "read"]}, "its claim scope is not valid", ""),
        ({"scope": ["read", 1]}, "its claim scope is not valid", ""),
        ({"scope": " "}, "its claim scope is not valid", ""),
        ({"sub": None}, "no claim sub with a name", ""),
        ({"sub": " "}, "no claim sub with a name", ""),
        ({"sub": ["ada"]}, "no claim sub with a name", ""),
        ({"exp": None}, "no claim exp", ""),
        ({"exp": "1700000300"}, "its claim exp is not a time", ""),
        ({"exp": True}, "its claim exp is not a time", ""),
        ({"exp": -1}, "its claim exp is not a time", ""),
        ({"exp": 1e300}, "its claim exp is not a time", ""),
        ({"exp": 10**400}, "its claim exp is not a time", ""),
        ({"exp": float("nan")}, "its claim exp is not a time", ""),
        ({"exp": float("inf")}, "its claim exp is not a time", ""),
        ({"nbf": float("nan")}, "its claim nbf is not a time", ""),
        ({"iat": {}}, "its claim iat is not a time", ""),
        ({"exp": NOW / 1000}, "it has expired", ""),
        ({"iat": NOW / 1000 + 2}, "it is not valid yet", ""),
        ({"nbf": NOW / 1000 + 2}, "it is not valid yet", ""),
        ({"iat": NOW / 1000 + 1, "exp": NOW / 1000 + 0.5}, "it ends before it begins", ""),
    ],
)
def test_tokens_without_a_signature_that_are_refused(changes: dict[str, Any], said: str, missing: str) -> None:
    with pytest.raises(TokenRefused, match=said) as refused:
        READS(none(changes))
    assert refused.value.missing == missing


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        f"{NONE}.{encoded(claims())}",
        f"{NONE}.{encoded(claims())}.YQ",
        f"{NONE}.{encoded(claims())}..",
        f"{encoded({'alg': 'HS256'})}.{encoded(claims())}.",
        f"{encoded({'alg': 'None'})}.{encoded(claims())}.",
        f"{encoded({})}.{encoded(claims())}.",
        f"{encoded(b'[]')}.{encoded(claims())}.",
        f"{NONE}.{encoded(b'[' * 20_000)}.",
        f"{NONE}.{encoded(b'1' * 20_000)}.",
        f"{NONE}.{encoded(bytes([255]))}.",
        f"{NONE}.e!.",
        f"{NONE}.e.",
        f"{NONE}.{'a' * LONGEST_TOKEN}.",
    ],
)
def test_what_is_no_token_without_a_signature(token: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        READS(token)
    assert refused.value.missing == ""


@given(token=st.text() | st.lists(st.binary().map(encoded), max_size=4).map(".".join))
def test_no_other_token_is_accepted(token: str) -> None:
    with pytest.raises(TokenRefused):
        READS(token)
