"""PLAIN, and the users of a JAAS configuration, with hostile input."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.security.sasl import PLAIN_MODULE, AuthenticationFailed, PlainUsers
from barnabas_protocol.jaas import parse_jaas

USERS = PlainUsers({"ada": "lovelace", "zoë": "pässword"})


@pytest.mark.parametrize(
    ("message", "user"),
    [
        (b"\0ada\0lovelace", "ada"),
        (b"ada\0ada\0lovelace", "ada"),
        ("\0zoë\0pässword".encode(), "zoë"),
    ],
)
def test_the_right_password(message: bytes, user: str) -> None:
    assert USERS.authenticate(message) == user


@pytest.mark.parametrize(
    ("message", "said", "user"),
    [
        (b"\0ada\0wrong", "Invalid username or password", "ada"),
        (b"\0eve\0lovelace", "Invalid username or password", "eve"),
        (b"zoe\0ada\0wrong", "Invalid username or password", "ada"),
        (b"zoe\0ada\0lovelace", "Client requested an authorization id that is different from username", "ada"),
        (b"\0\0lovelace", "username not specified", ""),
        (b"\0ada\0", "password not specified", "ada"),
        (b"\0ada", "Invalid SASL/PLAIN response: expected 3 tokens, got 2", ""),
        (b"\0ada\0love\0lace", "Invalid SASL/PLAIN response: expected 3 tokens, got 4", ""),
        (b"", "expected 3 tokens, got 1", ""),
        (b"\0ada\0\xff", "Invalid SASL/PLAIN response: not UTF-8", ""),
    ],
)
def test_what_is_refused(message: bytes, said: str, user: str) -> None:
    with pytest.raises(AuthenticationFailed, match=said) as refused:
        USERS.authenticate(message)
    assert refused.value.user == user
    assert "lovelace" not in str(refused.value)


@given(message=st.binary() | st.lists(st.text(), min_size=3, max_size=3).map(lambda parts: "\0".join(parts).encode()))
def test_no_other_message_is_accepted(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        USERS.authenticate(message)


def test_jaas_as_kafka_documents_it() -> None:
    text = (
        f"{PLAIN_MODULE} required\n"
        'username="admin" password="admin-secret"\n'
        " user_admin=\"admin-secret\" user_al.ice='a\"\\'\\\\ ;b' user_c=plain;"
    )
    login = parse_jaas(text)
    assert login.module == PLAIN_MODULE
    assert login.options == {
        "username": "admin",
        "password": "admin-secret",
        "user_admin": "admin-secret",
        "user_al.ice": "a\"'\\ ;b",
        "user_c": "plain",
    }
    users = PlainUsers.of_jaas(text)
    assert "al.ice" in users
    assert "username" not in users
    assert users.authenticate(b"\0c\0plain") == "c"
    assert "admin-secret" not in repr(users)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be MODULE required"),
        (f'{PLAIN_MODULE} user_a="hush";', "must be MODULE required"),
        (f'{PLAIN_MODULE} required user_a="hush"', "with the semicolon last"),
        (f'{PLAIN_MODULE} required user_a="hush"; x', "with the semicolon last"),
        (f'{PLAIN_MODULE} required user_a="hush;', "with the semicolon last"),
        ('x.ScramLoginModule required user_a="hush";', "must be for org.apache.kafka.*PlainLoginModule"),
        (f'{PLAIN_MODULE} required username="a" password="hush";', "must have users"),
        (f'{PLAIN_MODULE} required user_="hush";', "must have users"),
        (f'{PLAIN_MODULE} required user_a="";', "must have users"),
    ],
)
def test_other_configurations_are_refused_without_their_passwords(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        PlainUsers.of_jaas(text)
    assert "hush" not in str(refused.value)


@given(text=st.text(alphabet="a.=\"'; \\\nrequired") | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"{PLAIN_MODULE} required {text}"):
        try:
            parse_jaas(whole)
        except ValueError:
            pass
