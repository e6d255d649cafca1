"""docs/benchmarks.md: a section for each family, rewritten when that family is measured; the rest stays unchanged."""

import re
from pathlib import Path
from typing import Final

from tests.bench.targets import ROOT

PATH: Final = ROOT / "docs" / "benchmarks.md"
HEAD: Final = """\
# Benchmarks

`make bench` and `make bench-kafka` write this page. Each round measures all targets, one after the other. A cell is the
median of the rounds, with the lowest and the highest in parentheses; a ratio is the median of the ratios of the rounds.
"""


def write(path: Path, section: str, title: str, body: str) -> None:
    """Replace the body of a section, or append the section."""
    begin, end = f"<!-- {section}:begin -->", f"<!-- {section}:end -->"
    whole = f"{begin}\n{body}\n{end}"
    text = path.read_text() if path.exists() else HEAD
    old = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if old.search(text):
        text = old.sub(lambda _: whole, text)
    else:
        text = f"{text.rstrip()}\n\n## {title}\n\n{whole}\n"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def chart(path: Path, section: str) -> Path:
    """Return the path of a section's chart, next to the report."""
    return path.with_suffix("") / f"{section}.png"
