"""The chart of a group as one file."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from barnabas_broker.http.report import report
from barnabas_explain.chart import chart
from tests.explain.offsets_log import NOON, OffsetsLog, member

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    '"><img src=x onerror=alert(1)>',
    "\u2028\u2029\ud800",
    "\x1b[31mred\u202e",
    "]]>" + "x" * 10_000,
)


def made(name: str) -> dict[str, Any]:
    log = OffsetsLog()
    log.generation(10, 1, member(name, 0, 1), joined=0)
    log.generation(1_010, 2, member(name, 0), member("b", 1), joined=1_000)
    return {"since": NOON, **chart(log.events)}


class _Parts(HTMLParser):
    """The elements of a file, and their texts by tag, as far as they have no elements inside."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.texts.setdefault(tag, []).append("")
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside][-1] += data


def parts(text: str) -> _Parts:
    found = _Parts()
    found.feed(text)
    found.close()
    return found


def test_it_needs_nothing_else() -> None:
    found = parts(report("g", made("a"), time_ms=NOON + 5_000))
    for tag, attributes in found.elements:
        assert not {"src", "href", "action", "style"} & set(attributes), tag
        assert not [name for name in attributes if name.startswith("on")], tag
    assert not {"link", "iframe", "object", "img", "form"} & {tag for tag, _ in found.elements}


def test_the_policy_allows_its_script_and_its_style_only() -> None:
    found = parts(report("g", made("a"), time_ms=NOON + 5_000))
    (policy,) = [each["content"] for tag, each in found.elements if each.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    (_, script), (style,) = found.texts["script"], found.texts["style"]
    assert dict(each.split(" ", 1) for each in policy.split("; ")) == {
        "default-src": "'none'",
        "script-src": hashed(script),
        "style-src": hashed(style),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_data_is_the_chart() -> None:
    drawn = made("a")
    now = {"group": "g", "members": []}
    data = json.loads(parts(report("g", drawn, time_ms=NOON + 5_000, now=now)).texts["script"][0])
    assert data == {
        "group": "g",
        "time": NOON + 5_000,
        "chart": json.loads(json.dumps(drawn)),
        "now": now,
        "requests": None,
    }


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name: str) -> None:
    plain = parts(report("g", made("a"), time_ms=NOON))
    text = report(name, made(name.replace("\ud800", "")), time_ms=NOON)  # a record cannot have half a character
    found = parts(text)
    assert [tag for tag, _ in found.elements] == [tag for tag, _ in plain.elements]
    assert json.loads(found.texts["script"][0])["group"] == name
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u2028-\u202e\ud800-\udfff]", text)
    text.encode()


def test_a_reader_without_scripts_gets_the_sentences() -> None:
    text = report("g", made("a"), time_ms=NOON)
    shown = text.partition("<noscript>")[2].partition("</noscript>")[0]
    assert "<h1>g</h1>" in shown
    assert "client-b (10.0.0.7) joined" in shown
    assert "Nothing is recorded" in report("g", {"since": 0, **chart([])}, time_ms=NOON)
