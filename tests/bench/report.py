"""docs/benchmarks.md: a section for each family, rewritten when that family is measured; the rest is left alone."""

import re
from typing import Final

from tests.bench.targets import ROOT

PATH: Final = ROOT / "docs" / "benchmarks.md"
HEAD: Final = """\
# Benchmarks

Measured with `make bench`, written by it. Targets are measured in turn, round by round; a cell is the median of the
rounds with the lowest and the highest, a ratio the median of the rounds' ratios.
"""


def write(section: str, title: str, about: str, machine: str, command: str, rounds: int, table: str) -> None:
    begin, end = f"<!-- {section}:begin -->", f"<!-- {section}:end -->"
    body = f"{begin}\n{about}\n\n{table}\n\n{machine}; `{command}`; {rounds} rounds.\n{end}"
    text = PATH.read_text() if PATH.exists() else HEAD
    old = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if old.search(text):
        text = old.sub(lambda _: body, text)
    else:
        text = f"{text.rstrip()}\n\n## {title}\n\n{body}\n"
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(text)
