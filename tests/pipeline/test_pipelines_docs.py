"""The imports and commands that docs/pipelines.md shows."""

import re
from pathlib import Path

from barnabas_pipeline import lake_table
from barnabas_pipeline.cli import COMMAND_LINE
from barnabas_pipeline.lake import table

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text()


def test_the_imports_work() -> None:
    shown = re.findall(r"from barnabas_pipeline\S* import \w+", PAGE)
    assert len(shown) == 3
    for statement in shown:
        exec(statement, {})


def test_the_commands_are_valid() -> None:
    shown = re.findall(r"^barnabas-pipeline ([^#\n]+)", PAGE, re.MULTILINE)
    assert len(shown) == 11
    for command in shown:
        words = [word.strip("\"'") for word in re.findall(r'"[^"]*"|\S+', command)]
        COMMAND_LINE.parse(words)


def test_the_first_name_of_read_still_works() -> None:
    assert lake_table.read is table.read
