"""The README's table of supported features by client, generated from the results of the interop tests.

    python -m tests.interop.table          runs the tests that need no Apache Kafka, and writes the table

A row is a test function (the first line of its docstring), a column is a client library, and a cell is the result of
all variations of the test with that library. tests/interop/test_table.py fails when rows or columns differ from the
tests. The cells need no such check: a test fails where a "yes" would be wrong.
"""

import argparse
import importlib
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.interop.clients.registry import MODULES, client_class

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"
BEGIN: Final = "<!-- compatibility:begin -->"
END: Final = "<!-- compatibility:end -->"
TESTS: Final = (
    "test_records",
    "test_groups",
    "test_consumer_protocol",
    "test_transactions",
    "test_logins",
    "test_admin",
    "test_scenario",
)

YES, PARTLY, LACKS, NO = "yes", "in part", "–", "no"


def rows() -> dict[str, str]:
    """Return the title of each test that takes a client, by its name in a JUnit report."""
    found = {}
    for name in TESTS:
        module = importlib.import_module(f"tests.interop.{name}")
        for function in vars(module).values():
            if getattr(function, "__name__", "").startswith("test_") and "client" in function.__annotations__:
                title = (function.__doc__ or "").strip().partition("\n")[0]
                found[f"{module.__name__}.{function.__name__}"] = title
    return found


def read_report(path: Path) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], set[str]]]:
    """Return the cells, and the reason for each cell that is not a "yes", by row and client."""
    outcomes: defaultdict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for case in ElementTree.parse(path).iter("testcase"):
        properties = {one.get("name"): one.get("value") for one in case.iter("property")}
        client = properties.get("client")
        if client is None:
            continue
        row = f"{case.get('classname')}.{str(case.get('name')).partition('[')[0]}"
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            outcome = NO, "the test fails"
        elif skipped is not None:
            outcome = NO if skipped.get("type") == "pytest.xfail" else LACKS, skipped.get("message") or ""
        else:
            outcome = YES, ""
        outcomes[row, client].append(outcome)
    cells: dict[tuple[str, str], str] = {}
    reasons: dict[tuple[str, str], set[str]] = {}
    for at, found in outcomes.items():
        kinds = {kind for kind, _ in found}
        cells[at] = NO if NO in kinds else kinds.pop() if len(kinds) == 1 else PARTLY
        reasons[at] = {reason for _, reason in found if reason}
    return cells, reasons


def render(
    cells: Mapping[tuple[str, str], str], reasons: Mapping[tuple[str, str], set[str]], versions: Mapping[str, str]
) -> str:
    clients = list(MODULES)
    lines = ["| | " + " | ".join(clients) + " |", "|---|" + "---|" * len(clients)]
    missing: dict[str, set[str]] = {client: set() for client in clients}
    for row, title in rows().items():
        lines.append(f"| {title} | " + " | ".join(cells.get((row, client), NO) for client in clients) + " |")
        for client in clients:
            missing[client] |= reasons.get((row, client), set())
    versioned = ", ".join(f"{client} {versions[client]}" for client in clients)
    notes = [f"{client}: {', '.join(sorted(lacks))}" for client, lacks in missing.items() if lacks]
    lines += ["", f"Tested with {versioned}."]
    if notes:
        lines += [f"“{LACKS}” and “{PARTLY}” mark what the library itself lacks; {'; '.join(notes)}."]
    return "\n".join(lines)


def split(text: str) -> tuple[str, str, str]:
    """Return the README before, between and after the markers."""
    before, begin, rest = text.partition(BEGIN)
    within, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no line {BEGIN} with {END} after it")
    return before + BEGIN, within, END + after


def labels(table: str) -> tuple[list[str], list[str]]:
    """Return the clients and the titles of a table of the README."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return [cell for cell in lines[0] if cell], [line[0] for line in lines[2:]]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the README's table of what works with which client.")
    parser.add_argument("--report", type=Path, help="a JUnit report of these tests, instead of running them")
    options = parser.parse_args(argv)
    before, _, after = split(README.read_text())
    with tempfile.TemporaryDirectory() as folder:
        report = options.report
        if report is None:
            report = Path(folder) / "report.xml"
            command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.workers", "--workers", "2"]
            command += ["-m", "interop and not kafka", f"--junit-xml={report}", "tests/interop"]
            subprocess.run(command, cwd=ROOT, check=False)
        cells, reasons = read_report(report)
    versions = {name: client_class(name).version() for name in MODULES}
    table = render(cells, reasons, versions)
    README.write_text(f"{before}\n{table}\n{after}")
    print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
