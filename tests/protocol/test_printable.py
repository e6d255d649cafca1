"""Text from clients does nothing to the terminal that shows it."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_protocol.printable import printable

#: Any text, lone surrogates included: a name from a file or an argument may hold them.
ANY_TEXT = st.text(st.characters())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("billing", "billing"),
        ("a b  c", "a b  c"),
        (r"DOMAIN\svc", r"DOMAIN\svc"),
        ("gruppe-ä-組", "gruppe-ä-組"),
        ("", ""),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("\x9b31m\x7f\x00", r"\x9b31m\x7f\x00"),
        ("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d"),
        ("user\u202egnp.exe\u200b", r"user\u202egnp.exe\u200b"),
        ("\udc1b", r"\udc1b"),
    ],
)
def test_examples(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(ANY_TEXT)
def test_the_result_is_one_line_that_a_terminal_shows_as_it_is(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert shown.encode().decode() == shown
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp") for character in shown)


@given(ANY_TEXT)
def test_a_second_time_changes_nothing(text: str) -> None:
    assert printable(printable(text)) == printable(text)


@given(st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126)))
def test_ascii_text_stays(text: str) -> None:
    assert printable(text) == text
