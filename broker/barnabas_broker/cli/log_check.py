"""`barnabas log check`: checks a log directory, without a broker and without changing anything."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, Final

from barnabas_broker.cli.output import Output
from barnabas_broker.storage.inspect import check
from barnabas_protocol.counts import counted


def log_check(arguments: Namespace, output: Output) -> int:
    """Print the problems; returns the exit status, 1 if there is a problem."""
    directory = Path(arguments.directory)
    report = check(directory, records=arguments.records)
    if output.json:
        output.data(
            {
                "directory": str(directory),
                "files": report.files,
                "batches": report.batches,
                "bytes": report.size,
                "problems": [
                    {
                        "file": str(problem.file),
                        "position": problem.position,
                        "offset": problem.offset,
                        "next_offset": problem.next_offset,
                        "reason": problem.reason,
                    }
                    for problem in report.problems
                ],
            }
        )
    if not report.files:
        output.error(f"{directory} has no logs. To do: give the broker's log.dir, or the directory of a partition")
        return 1
    if not output.json:
        for problem in report.problems:
            output.line(str(problem))
        verdict = counted(len(report.problems), "problem") if report.problems else "sound"
        batches = counted(report.batches, "sound batch", "sound batches")
        output.line(f"{counted(report.files, 'file')}, {batches}, {report.size:,} bytes: {verdict}")
    return 1 if report.problems else 0


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a log directory, or the directory of a partition")
    parser.add_argument("--records", action="store_true", help="decode the records as well, which takes longer")


COMMAND: Final[dict[str, Any]] = {
    "path": ("log", "check"),
    "help": "check a log directory without changing it",
    "add_arguments": _arguments,
    "run": log_check,
    "offline": True,
}
