"""Write the tables of docs/observing.md about the events of groups: their types, and their fields.

They are made of the catalogue that brokers write events with.

python -m tests.docs.events
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from barnabas_explain.catalog import EVENTS, FIELDS, GroupEvent, MemberEvent

PAGE: Final = Path(__file__).parents[2] / "docs" / "observing.md"
#: The text before the first of these lines and after the second is written by hand.
MARK: Final = "<!-- The tables of events are generated: make pages -->"
END: Final = "<!-- The end of the tables of events -->"
#: Fields that every event has, and those of its member.
COMMON: Final = ("group", "time", "generation", "member")
#: Fields that the table does not repeat for each type.
_ANY: Final = ("inferred", "between", "shortened")


def recorded(cls: type[GroupEvent]) -> Iterator[str]:
    """The names of the fields that records of a type have of their own."""
    return (each.name for each in cls.fields if each.name not in COMMON and each.metadata.get("recorded", True))


def render() -> str:
    """The page with the present tables."""
    lines = ["| `type` | when | fields |", "|---|---|---|"]
    for name, cls in EVENTS.items():
        if cls.recorded:
            member = ["the member"] if issubclass(cls, MemberEvent) else []
            names = [f"`{each}`" for each in recorded(cls) if each not in _ANY]
            lines.append(f"| `{name}` | {inspect.cleandoc(cls.__doc__ or '')} | {', '.join(member + names)} |")
    lines += ["", "| field | is |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in sorted(FIELDS.items())]
    before, rest = PAGE.read_text("utf-8").split(MARK)
    return "\n".join([f"{before}{MARK}", "", *lines, "", f"{END}{rest.split(END)[1]}"])


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
