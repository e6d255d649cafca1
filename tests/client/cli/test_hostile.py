"""Text of clients in the output of commands, such as group ids and reasons: no escape code reaches a terminal."""

import json
from collections.abc import Callable

import pytest

from barnabas_client.admin.types import GroupDescription, MemberDescription
from barnabas_client.cli.events import lines
from barnabas_client.cli.groups import _print_members, offset_cells
from barnabas_client.cli.output import Column, Output
from barnabas_client.cli.screen import Measured, draw, draw_groups
from barnabas_client.history.view import GroupView, Row
from barnabas_client.structs import TopicPartition

BAD = "x\x1b[2J\x9bm\u202e\r\nforged"
SAFE = r"x\x1b[2J\x9bm\u202e\r\nforged"
MEMBER = MemberDescription(BAD, BAD, BAD, BAD, (TopicPartition("t", 0),), ())
GROUP = GroupDescription(BAD, None, BAD, BAD, BAD, (MEMBER,), None)
ROW = Row(TopicPartition(BAD, 0), 1, 2, MEMBER)
EXPLANATION = {"time": 0, "text": BAD, "details": [BAD], "remedy": BAD}


def output() -> Output:
    return Output(color=False)


PRINTERS: dict[str, Callable[[], object]] = {
    "a line": lambda: output().line(BAD),
    "a table": lambda: output().table([Column("A"), Column("B", 0)], [[BAD, BAD]]),
    "offsets": lambda: output().table([Column("A")] * 9, [offset_cells(BAD, ROW)]),
    "members": lambda: _print_members(GROUP, True, output()),
    "an explanation": lambda: output().lines(lines(EXPLANATION, output())),
    "a group": lambda: output().lines(
        draw(Measured(GroupView(GROUP, [ROW], 0), {}, {}, [EXPLANATION]), output(), None, None)
    ),
    "groups": lambda: output().lines(
        draw_groups(0, [Measured(GroupView(GROUP, [ROW], 0), {}, {}, [EXPLANATION])], {BAD: BAD}, output(), None, None)
    ),
}


@pytest.mark.parametrize("name", PRINTERS)
def test_text_is_escaped(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    PRINTERS[name]()
    out = capsys.readouterr().out
    assert SAFE in out
    assert out.replace("\n", "").isprintable()


@pytest.mark.parametrize("width", [72, 80, 120])
def test_a_view_with_escapes_fits_the_screen(width: int) -> None:
    group = GroupDescription(BAD, None, "Stable", "consumer", BAD, (MEMBER,), None)
    measured = Measured(GroupView(group, [ROW], 0), {}, {}, [EXPLANATION] * 3)
    for view in (draw(measured, output(), width, 24), draw_groups(0, [measured], {}, output(), width, 24)):
        assert max(map(len, view)) <= width
        assert all(line.isprintable() for line in view)


def test_errors_and_notes_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    output().error(BAD)
    output().note(BAD)
    first, second = capsys.readouterr().err.splitlines()
    assert first == r"barnabas: x\x1b[2J\x9bm\u202e forged"
    assert second == SAFE


def test_json_is_escaped_and_stays_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    data = {BAD: [BAD, "ä\U000e0001\ud800", 1]}
    output().data(data)
    output().row(data)
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
    whole, row = out.rsplit("\n{", 1)
    assert json.loads(whole) == json.loads("{" + row) == data
    assert "ä" in out
