"""Write docs/compatibility.md: what is not as in Apache Kafka, and why, out of the declarations beside the scenarios.

python -m tests.interop.behaviour.page
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.interop.behaviour.compare import declaring
from tests.interop.behaviour.families import families
from tests.interop.behaviour.language import Ask, Family
from tests.interop.kafka_server import kafka_version

PAGE: Final = Path(__file__).parents[3] / "docs" / "compatibility.md"
#: Scenarios that are named for a difference at most.
NAMED: Final = 3

HEAD: Final = """\
# Compatibility with Apache Kafka

Barnabas is compared with Apache Kafka {version} by {scenarios} scenarios: requests by API, version and content over raw
connections, and the answers field by field. What Kafka answered is written down beside the scenarios, so that every
test run compares with it; `make interop` plays the scenarios against a running Apache Kafka as well and sees that it
still answers so. A difference that is not declared fails, and so does a declaration without a difference.

Not compared are what no two runs have in common (ids, ports, the time of day), the order of lists in which order means
nothing, throttle times, disk sizes, and the texts beside error codes.

This page is made from the declarations: `python -m tests.interop.behaviour.page`.

## What is compared

| Area | Scenarios | APIs and versions |
|---|---|---|
"""


def _covered(family: Family) -> str:
    versions: dict[str, set[int]] = {}
    for scenario in family.scenarios:
        for step in scenario.steps:
            if isinstance(step, Ask) and not step.quiet:
                versions.setdefault(step.api.name, set()).add(step.version)
    names = {name: "".join(part.capitalize() for part in name.split("_")) for name in versions}
    return ", ".join(f"{names[name]} {_ranges(sorted(found))}" for name, found in sorted(versions.items()))


def _ranges(numbers: list[int]) -> str:
    """1, 2, 3, 7 as 1-3/7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "/".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def render() -> str:
    """The page."""
    every = families()
    count = sum(len(family.scenarios) for family in every.values())
    lines = [HEAD.format(version=kafka_version(), scenarios=count).rstrip()]
    lines += [f"| {family.title} | {len(family.scenarios)} | {_covered(family)} |" for family in every.values()]
    lines += ["", "## What differs"]
    for family in every.values():
        if not family.differences:
            continue
        lines += ["", f"### {family.title}", ""]
        for difference in family.differences:
            shown = declaring(family, difference)
            more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
            where = "; ".join(shown[:NAMED]) + more
            lines.append(f"- **{difference.title}.** {difference.reason} *({where})*")
    same = [family.title for family in every.values() if not family.differences]
    if same:
        lines += ["", f"Nothing differs in: {', '.join(same)}."]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(description="Write docs/compatibility.md.").parse_args(argv)
    PAGE.write_text(render())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
