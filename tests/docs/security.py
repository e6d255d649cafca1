"""Write the tables of docs/security.md: what each API authorizes, and which APIs make the changes of the audit log.

They are made of the rows that the broker itself reads.

python -m tests.docs.security
"""

from pathlib import Path
from typing import Final

from barnabas_broker.handlers.table import join
from barnabas_broker.security.acls import Requirement
from barnabas_broker.security.audit import Change

PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
#: The text before the first of these lines and after the second is written by hand.
MARK: Final = "<!-- The table is generated: make pages -->"
END: Final = "<!-- The end of the table -->"
CHANGES: Final = "<!-- The table of changes is generated: make pages -->"
END_OF_CHANGES: Final = "<!-- The end of the table of changes -->"


def _words(requirement: Requirement) -> str:
    words = " or ".join(str(each) for each in requirement.any_of)
    return f"{words}, if {requirement.when}" if requirement.when else words


def table() -> str:
    """The table: an API, and everything that it requires."""
    lines = ["| API | requires |", "|---|---|"]
    for key, route in sorted(join().items(), key=lambda item: item[0].title):
        required = "; ".join(map(_words, route.authorizes)) or (
            "nothing" if "TELEMETRY" in key.name else "nothing: it comes before the login"
        )
        lines.append(f"| {key.title} | {required} |")
    return "\n".join(lines)


def changes() -> str:
    """The table: a line of the audit log, and the APIs that cause it."""
    rows = join().values()
    lines = ["| line | API |", "|---|---|"]
    for change in Change:
        lines.append(f"| `{change}` | {', '.join(sorted(row.key.title for row in rows if change in row.changes))} |")
    return "\n".join(lines)


def render() -> str:
    """The page with the present tables."""
    page = PAGE.read_text("utf-8")
    for mark, end, made in ((MARK, END, table()), (CHANGES, END_OF_CHANGES, changes())):
        before, rest = page.split(mark)
        page = f"{before}{mark}\n\n{made}\n\n{end}{rest.split(end)[1]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
