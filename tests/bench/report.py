"""docs/benchmarks.md: a section for each family, rewritten when that family is measured; the rest stays unchanged."""

import re
from pathlib import Path
from typing import Final

from tests.bench.targets import ROOT

PATH: Final = ROOT / "docs" / "benchmarks.md"
HEAD: Final = """\
# Benchmarks

Measured with `make bench` and `make bench-kafka`, written by them. Targets are measured in turn, round by round; a cell
is the median of the rounds with the lowest and the highest, a ratio the median of the rounds' ratios.
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


def picture(path: Path, section: str) -> Path:
    """Return the path of a section's picture, next to the report."""
    return path.with_suffix("") / f"{section}.png"
