"""A group's chart as one file that needs nothing else: for incident reports, and for failed tests. Pure but for files.

The file has the page's own modules as one script, its style, and the data. A policy in the file allows that script and
that style by their hashes, and nothing else. Where scripts are not allowed, the sentences are shown.
"""

import hashlib
import json
import re
import time
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any, Final

#: The module with which a report begins, and the one that stands in place of another.
_ENTRY: Final = "report.js"
_INSTEAD: Final = {"poll.js": "fixed.js"}
_IMPORT: Final = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?(?:function|const|let|class) (\w+))", re.MULTILINE)
_ANY_IMPORT: Final = re.compile(r"^\s*(?:import|export)\b", re.MULTILINE)
#: Characters of JSON that mean something in HTML or in old scripts.
_IN_HTML: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
#: Characters that change the direction of text, or that are not shown.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def report(
    group: str,
    chart: Mapping[str, Any],
    *,
    time_ms: int,
    now: Mapping[str, Any] | None = None,
    requests: Mapping[str, Any] | None = None,
) -> str:
    """The file.

    Args:
        group: the group.
        chart: of :func:`~barnabas_explain.chart.chart`, with `since`.
        time_ms: the time at which it is made, in ms since 1970: the right end of the time axis.
        now: the group as it is then, in the shape of ``/groups/{id}``; None if that is not known.
        requests: of its members, in the shape of ``/groups/{id}/requests``; None if they are not known.
    """
    script, style = _script(), _page("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    known = {"group": group, "time": time_ms, "chart": chart, "now": now, "requests": requests}
    data = json.dumps(known).translate(_IN_HTML)
    title = f"{_text(group[:200])} – Barnabas"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<header class="top">
<b class="brand">Barnabas</b>
<span id="broker" class="quiet"></span>
<span class="connection"></span>
<button id="theme" type="button">Theme</button>
</header>
<p id="trouble" class="trouble" role="alert" hidden></p>
<main id="main"><noscript>{_sentences(group, chart)}</noscript></main>
<script type="application/json" id="data">{data}</script>
<script>{script}</script>
</body>
</html>
"""


def _sentences(group: str, chart: Mapping[str, Any]) -> str:
    """The explanations as HTML, for a reader without scripts."""
    lines = [f"<h1>{_text(group)}</h1>"]
    for each in chart["explanations"]:
        clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each["time"] / 1000))
        lines.append(f"<h2>{clock}</h2>")
        lines += (f"<p>{_text(text)}</p>" for text in (each["text"], *each["details"], each["remedy"] or "") if text)
    if not chart["explanations"]:
        lines.append("<p>Nothing is recorded of this group.</p>")
    return "\n".join(lines)


def _text(value: str) -> str:
    return escape(_UNPRINTABLE.sub("\ufffd", value))


def _script() -> str:
    """The modules as one script: each is a function that returns what it exports."""
    made: dict[str, str] = {}
    _add(_ENTRY, made)
    return '"use strict";\n' + "\n".join(made.values())


def _add(name: str, made: dict[str, str]) -> None:
    """Add a module after those that it imports."""
    source = _page(_INSTEAD.get(name, name))
    for _, other in _IMPORT.findall(source):
        if other not in made:
            _add(other, made)
    body = _IMPORT.sub(
        lambda found: f"const {{{found[1].replace(' as ', ': ')}}} = {_variable(found[2])};\n",
        source,
    )
    exported = [each[1] for each in _EXPORT.findall(body)]
    body = _EXPORT.sub(r"\1", body)
    if _ANY_IMPORT.search(body) or "</script" in body or "<!--" in body:
        raise ValueError(f"{name} cannot be a part of a report: it imports or exports in another way")
    made[name] = f"const {_variable(name)} = (() => {{\n{body}return {{ {', '.join(exported)} }};\n}})();"


def _variable(module: str) -> str:
    return "module_" + re.sub(r"\W", "_", module)


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _page(name: str) -> str:
    return (files("barnabas_broker") / "http" / "page" / name).read_text(encoding="utf-8")
