"""Signed tokens and sets of keys, with hostile ones."""

import json
from typing import Any, Final

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.security.bearer import LONGEST_TOKEN, ClaimNames, Token, TokenRefused, TokenRules
from barnabas_broker.security.tokens import (
    LARGEST_SET,
    MOST_KEYS,
    KeySet,
    KeysRefused,
    SignedTokens,
    UnknownKey,
    check,
)
from tests.lots import in_lots
from tests.tokens import AUDIENCE, ISSUER, claims, ec_key, encoded, jwk, rsa_key, unsecured

NOW: Final = 1_700_000_000_000
RULES: Final = TokenRules((AUDIENCE, "other"), ISSUER, ClaimNames(), 30_000)
RSA, EC, OTHER = rsa_key(), ec_key(), rsa_key()
KEYS: Final = KeySet.of_json(json.dumps({"keys": [jwk(RSA, kid="r"), jwk(EC, kid="e")]}).encode())


def signed(key: Any = RSA, algorithm: str = "RS256", kid: Any = "r", headers: Any = None, **changes: Any) -> str:
    header = {**({} if kid is None else {"kid": kid}), **(headers or {})}
    # Not by jwt.encode, which refuses to make some that are not valid.
    return jwt.PyJWS().encode(json.dumps(claims(now=NOW / 1000, **changes)).encode(), key, algorithm, header)


@pytest.mark.parametrize(
    "token",
    [
        signed(),
        signed(algorithm="PS384"),
        signed(kid=None),
        signed(EC, "ES256", "e"),
        signed(EC, "ES256", None),
        signed(aud=["more", "other"]),
        signed(scope=["a", "b"]),
        signed(scope="a b"),
        signed(nbf=NOW / 1000 + 29),
        signed(iat=NOW / 1000 + 200),
        signed(headers={"typ": "at+jwt", "jku": "https://evil.example.com", "jwk": jwk(OTHER)}),
    ],
)
def test_tokens_of_the_provider(token: str) -> None:
    assert check(token, KEYS, RULES, NOW) == Token("ada", NOW + 300_000)


def test_rules_that_ask_for_less() -> None:
    rules = TokenRules((), "", ClaimNames("client_id", "scp"), 0)
    assert check(signed(aud=None, iss=None, sub=None, client_id="zoë"), KEYS, rules, NOW).user == "zoë"
    with pytest.raises(TokenRefused, match="audience"):
        check(signed(), KEYS, rules, NOW)


PUBLIC: Final = RSA.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def forged(algorithm: str, key: bytes = PUBLIC) -> str:
    """A token that is signed with a public key as if it were a password."""
    import hashlib
    import hmac

    text = f"{encoded({'alg': algorithm, 'kid': 'r'})}.{encoded(claims(now=NOW / 1000))}"
    return f"{text}.{encoded(hmac.digest(key, text.encode(), hashlib.sha256))}"


@in_lots(
    ("token", "said"),
    [
        (forged("HS256"), "no key of the provider is for it .algorithm HS256, kid r."),
        (forged("none"), "no key of the provider is for it"),
        (forged("RS256"), "its signature is wrong"),
        (unsecured(), "no key of the provider is for it"),
        (signed().rpartition(".")[0] + ".", "its signature is wrong"),
        (signed(OTHER), "its signature is wrong"),
        (signed(OTHER, kid=None), "its signature is wrong"),
        (signed(OTHER, kid="x"), "no key of the provider is for it .algorithm RS256, kid x."),
        (signed(kid="e"), "no key of the provider is for it"),
        (signed(EC, "ES256", "r"), "no key of the provider is for it"),
        (signed(OTHER, kid="\x1b[2J"), r"kid \\x1b\[2J"),
        (signed(exp=None), "it has no claim exp"),
        (signed(iat=None), "it has no claim iat"),
        (signed(seconds=0), "it has expired"),
        (signed(seconds=-20), "it has expired"),
        (signed(exp=float("nan")), "its claim exp is not a time"),
        (signed(nbf=NOW / 1000 + 31), "it is not valid yet"),
        (signed(iat=NOW / 1000 + 400), "it ends before it begins"),
        (signed(aud=None), "aud"),
        (signed(aud="x"), "[Aa]udience"),
        (signed(aud=[1]), "[Cc]laim"),
        (signed(iss=None), "iss"),
        (signed(iss="x"), "issuer"),
        (signed(iss=["x"]), "[Ii]ssuer"),
        (signed(sub=None), "no claim sub"),
        (signed(sub=5), "no claim sub"),
        (signed(scope=["a", "a"]), "its claim scope is not valid"),
        (signed(headers={"crit": ["x"], "x": 1}), "its header asks for extensions"),
    ],
)
def test_tokens_that_are_refused(token: str, said: str) -> None:
    with pytest.raises(TokenRefused, match=said) as refused:
        check(token, KEYS, RULES, NOW)
    assert isinstance(refused.value, UnknownKey) == ("no key" in said or "kid" in said)
    assert token.split(".")[1] not in str(refused.value)


def with_header(header: bytes) -> str:
    return f"{encoded(header)}.{encoded(claims())}.{encoded(b'x')}"


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        "a.b.c.d",
        "é.b.c",
        with_header(b"{}"),
        with_header(b"[]"),
        with_header(b"1" * 3000),
        with_header(b"[" * 3000),
        with_header(b"{" * 4000),
        with_header(b'{"alg":["RS256"]}'),
        with_header(b'{"alg":"RS256","kid":5}'),
        with_header(b'{"alg":"RS256","kid":"%s"}' % (b"a" * 1001)),
        with_header(b'{"alg":"RS256","b64":false,"kid":"r"}'),
        with_header(b'{"alg":"RS256","zip":"DEF","kid":"r"}'),
        f"{signed()}{'a' * LONGEST_TOKEN}",
    ],
)
def test_what_is_no_token(token: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        check(token, KEYS, RULES, NOW)
    assert not isinstance(refused.value, UnknownKey)


@pytest.mark.parametrize("body", [b"[" * 15_000, b"1" * 15_000, b"[]", b"\xff", b"null"])
def test_a_body_that_cannot_be_read(body: bytes) -> None:
    token = jwt.PyJWS().encode(body, RSA, "RS256", {"kid": "r"})
    with pytest.raises(TokenRefused):
        check(token, KEYS, RULES, NOW)


@given(token=st.text() | st.lists(st.binary().map(encoded), min_size=3, max_size=3).map(".".join))
def test_no_other_token_is_accepted(token: str) -> None:
    with pytest.raises(TokenRefused):
        check(token, KEYS, RULES, NOW)


@given(at=st.integers(0, len(signed()) - 1), other=st.sampled_from("aZ0-_."))
def test_a_token_that_was_changed_is_refused(at: int, other: str) -> None:
    token = signed()
    changed = token[:at] + other + token[at + 1 :]
    if changed == token:
        return
    with pytest.raises(TokenRefused):
        check(changed, KEYS, RULES, NOW)


# Keys


def of(*entries: Any) -> KeySet:
    return KeySet.of_json(json.dumps({"keys": entries}).encode())


def test_which_algorithms_a_key_has() -> None:
    assert of(jwk(RSA, kid="r", alg="PS512")).find("PS512", "r")
    assert not of(jwk(RSA, kid="r", alg="PS512")).find("RS256", "r")
    for curve, algorithm in ((ec.SECP384R1(), "ES384"), (ec.SECP521R1(), "ES512")):
        keys = of(jwk(ec.generate_private_key(curve)))
        assert [key.algorithms for key in keys.find(algorithm, None)] == [(algorithm,)]
    public = ed25519.Ed25519PrivateKey.generate().public_key()
    assert of(json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(public))).find("EdDSA", None)


def test_a_private_key_in_a_set_is_taken_as_its_public_one() -> None:
    private = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA))
    (key,) = of(private).find("RS256", None)
    assert not hasattr(key.key, "sign")


def test_keys_that_cannot_be_used_are_left_out() -> None:
    useless = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "o"},
        jwk(RSA, use="enc"),
        jwk(RSA, alg="HS256"),
        jwk(RSA, alg="RSA-OAEP"),
        jwk(RSA, kid=5),
        jwk(rsa_key(1024)),
        jwk(ec.generate_private_key(ec.SECP256K1())),
        {**jwk(RSA), "n": "!!"},
        {**jwk(RSA), "n": "AQ" * 50_000},
        {**jwk(RSA), "e": "AA"},
        {**jwk(EC), "x": "AQ"},
        {**jwk(EC), "crv": ["P-256"]},
        {"kty": "RSA"},
        {"kty": ["RSA"]},
        {"kty": "OKP", "crv": "X25519", "x": "AQ"},
        5,
    ]
    assert len(of(*useless, jwk(RSA))) == 1
    with pytest.raises(KeysRefused, match="no RSA, EC or Ed25519 key"):
        of(*useless)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "not a JWK set"),
        (b'{"keys":{}}', "not a JWK set"),
        (b'{"keys":[]}', "no RSA, EC or Ed25519 key"),
        (b'{"keys":[%s1]}' % (b"1," * MOST_KEYS), "more than 200 keys"),
        (b" " * (LARGEST_SET + 1), "more than 1048576 bytes"),
    ],
)
def test_what_is_no_set_of_keys(text: bytes, said: str) -> None:
    with pytest.raises(KeysRefused, match=said):
        KeySet.of_json(text)


def test_only_a_token_of_an_unknown_key_asks_for_newer_keys() -> None:
    asked: list[int] = []
    tokens = SignedTokens(RULES, lambda: KEYS, lambda: NOW, lambda: asked.append(1))
    assert tokens(signed()).user == "ada"
    for token in (signed(seconds=-100), "a.b.c", forged("RS256")):
        with pytest.raises(TokenRefused):
            tokens(token)
    assert asked == []
    with pytest.raises(UnknownKey):
        tokens(signed(kid="new"))
    assert asked == [1]


def test_tokens_are_refused_as_long_as_no_keys_are_known() -> None:
    with pytest.raises(TokenRefused, match="keys of the provider are not known yet"):
        SignedTokens(RULES, lambda: None, lambda: NOW, lambda: None)(signed())
