"""The packages and the documentation use the terms of the field, and always the same ones."""

import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]

#: A word that is not used, and the term that is.
TERMS = {
    r"tellers?": "explainer",
    r"embryo|member to be": "pending member",
    r"newcomers?": "new member",
    r"lets? go of|letting go of": "revoke, release",
    r"pictures?": "image, chart, diagram",
    r"who(ever|soever)": "a client, a program",
    r"nobody|somebody": "no client, a client",
    r"put aside": "set aside, stored",
    r"(is|are) told": "receives",
}
_ANY = re.compile(rf"\b(?:{'|'.join(f'(?P<t{at}>{word})' for at, word in enumerate(TERMS))})\b", re.IGNORECASE)

#: Openings of docstrings that do not say what a thing is.
_RIDDLE = re.compile(r'\s*r?"""(What|Who|Whom|All but)\b')

#: A bound that hangs on a noun: "Bytes of a file at most."
_HANGING = re.compile(r"\s*#:? .*\bat (most|least)([.:;,]|$)")


def pages() -> list[Path]:
    """The sources of the packages, the examples, and the documentation."""
    folders = [PROJECT / name for name in ("protocol", "explain", "broker", "client", "pipeline", "examples", "docs")]
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.suffix in {".py", ".md", ".html"}]
    return [PROJECT / "README.md", PROJECT / "CHANGELOG.md", *sorted((PROJECT / "tests").glob("*.md")), *found]


def wrong_words(text: str) -> list[str]:
    """The words that are not used, with the term that is."""
    terms = list(TERMS.values())
    return [f"{found[0]!r}: say {terms[int(str(found.lastgroup)[1:])]!r}" for found in _ANY.finditer(text)]


def test_the_terms_of_the_field() -> None:
    wrong = [
        f"{path.relative_to(PROJECT)}:{number}: {word}"
        for path in pages()
        if wrong_words(text := path.read_text())
        for number, line in enumerate(text.splitlines(), 1)
        for word in wrong_words(line)
    ]
    assert wrong == []


def test_a_docstring_names_the_thing_at_its_beginning() -> None:
    folders = [PROJECT / name for name in ("protocol", "explain", "broker", "client", "pipeline")]
    riddles = [
        f"{path.relative_to(PROJECT)}:{number}: {line.strip()}"
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _RIDDLE.match(line)
    ]
    assert riddles == [], "say what it is or does: 'Cache of ...', 'Computes ...'"


def test_no_bound_hangs_on_a_noun_in_a_comment() -> None:
    folders = [PROJECT / name for name in ("protocol", "explain", "broker", "client", "pipeline")]
    hanging = [
        f"{path.relative_to(PROJECT)}:{number}: {line.strip()}"
        for folder in folders
        for path in sorted(folder.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if _HANGING.match(line)
    ]
    assert hanging == [], "say 'Maximum bytes of a file.', not 'Bytes of a file at most.'"


def test_a_word_that_is_not_used_is_found() -> None:
    assert wrong_words("Whoever lets go of a partition") == [
        "'Whoever': say 'a client, a program'",
        "'lets go of': say 'revoke, release'",
    ]
