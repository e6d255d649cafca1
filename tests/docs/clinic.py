"""Write the table of docs/observing.md with what `barnabas groups explain` makes of the diseases of groups.

python -m tests.docs.clinic

The grades are those of the tests in `tests/clinic`, which fail if an explanation is wrong, or has another grade.
"""

from collections import Counter
from pathlib import Path
from typing import Final

from tests.clinic.diseases import CLIENTS, DISEASES, RIGHT, SILENT, VAGUE

PAGE: Final = Path(__file__).parents[2] / "docs" / "observing.md"
#: The text before the first of these lines and after the second is written by hand.
MARK: Final = "<!-- The table of diseases is generated: make pages -->"
END: Final = "<!-- The end of the table of diseases -->"


def table() -> str:
    """The table: a row for each disease, a column for each library and protocol."""
    cases = [(library, protocol) for library, protocols in CLIENTS.items() for protocol in protocols]
    given = Counter(disease.grade(case) for disease in DISEASES for case in cases if case not in disease.without)
    score = ", ".join(f"{given[grade]} {grade}" for grade in (RIGHT, VAGUE, SILENT))
    lines = [
        f"Of {given.total()} cases: {score}, none wrong.",
        "",
        f"| disease | {' | '.join(f'{library}, {protocol}' for library, protocol in cases)} |",
        "|---|" + "---|" * len(cases),
    ]
    for disease in DISEASES:
        grades = ["-" if case in disease.without else disease.grade(case) for case in cases]
        lines.append(f"| {disease.name} | {' | '.join(grades)} |")
    return "\n".join(lines)


def render() -> str:
    """The page with the present table."""
    before, rest = PAGE.read_text("utf-8").split(MARK)
    return f"{before}{MARK}\n\n{table()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
