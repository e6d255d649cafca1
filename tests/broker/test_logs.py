"""Log lines go where the program's logging sends them; the `broker` command writes them for people or for programs."""

import json
import logging
from collections.abc import Callable, Iterator
from io import StringIO

import pytest

from barnabas_broker import logs

AT = 1_700_000_000.25
TIME = "2023-11-14T22:13:20.250000Z"


def record(event: str, level: int = logging.INFO, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("barnabas_broker.test", level, "", 0, event, None, None)
    made.created = AT
    vars(made).update(event=event, fields=fields)
    return made


def test_pairs_follow_the_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "barnabas_broker.test"):
        logs.logger("test").info("joined", group="a b", generation=5, event="x", reason="")
        logs.logger("test").debug("not shown")
    assert [line.getMessage() for line in caplog.records] == ["joined group='a b' generation=5 event=x reason=''"]


def test_an_event_alone_may_hold_anything(caplog: pytest.LogCaptureFixture) -> None:
    logs.logger("test").warning("100 % of %s")
    assert caplog.records[0].getMessage() == "100 % of %s"


def test_a_record_names_the_line_that_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    log = logs.logger("test")
    for write in (log.warning, log.error, log.exception):
        write("here")
    assert {line.funcName for line in caplog.records} == {"test_a_record_names_the_line_that_wrote_it"}


def test_a_line_for_people() -> None:
    line = logs.ConsoleFormatter(colors=False).format(record("started", node_id=1, where="a\nb"))
    assert line == TIME + " [info     ] started                        node_id=1 where='a\\nb'"


def test_colors_are_only_added() -> None:
    line = logs.ConsoleFormatter(colors=True).format(record("started", logging.ERROR, node_id=1))
    for code in ("\x1b[31m", "\x1b[1m", "\x1b[2m", "\x1b[0m"):
        assert code in line
        line = line.replace(code, "")
    assert line == logs.ConsoleFormatter(colors=False).format(record("started", logging.ERROR, node_id=1))


def test_a_line_for_programs() -> None:
    said = json.loads(logs.JsonFormatter().format(record("started", node_id=1, error=ValueError("no"))))
    assert said == {
        "node_id": 1,
        "error": "no",
        "event": "started",
        "level": "info",
        "logger": "barnabas_broker.test",
        "timestamp": TIME,
    }


@pytest.fixture
def configured() -> Iterator[Callable[[str, str], StringIO]]:
    """Configures logging as the command does, with lines that can be read."""
    root, ours = logging.getLogger(), logging.getLogger("barnabas_broker")
    handlers, level, our_level = list(root.handlers), root.level, ours.level

    def configure(form: str, least: str) -> StringIO:
        for handler in list(root.handlers):
            root.removeHandler(handler)
        stream = StringIO()
        logs.configure(form, least, stream)
        return stream

    yield configure
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    ours.setLevel(our_level)


@pytest.mark.parametrize(
    ("least", "events"),
    [
        ("debug", ["debug", "info", "warning", "error", "theirs"]),
        ("info", ["info", "warning", "error", "theirs"]),
        ("warning", ["warning", "error", "theirs"]),
        ("error", ["error"]),
    ],
)
def test_a_level_is_the_least_that_is_written(
    configured: Callable[[str, str], StringIO], least: str, events: list[str]
) -> None:
    lines = configured("json", least)
    log = logs.logger("test")
    for write in (log.debug, log.info, log.warning, log.error):
        write(write.__name__)
    logging.getLogger("asyncio").info("not told")
    logging.getLogger("asyncio").warning("theirs")
    assert [json.loads(line)["event"] for line in lines.getvalue().splitlines()] == events


@pytest.mark.parametrize("form", logs.FORMATS)
def test_an_exception_brings_its_traceback(configured: Callable[[str, str], StringIO], form: str) -> None:
    lines = configured(form, "info")
    try:
        raise RuntimeError("no")
    except RuntimeError:
        logs.logger("test").exception("failed", path="/x")
    said = lines.getvalue()
    text = json.loads(said)["exception"] if form == "json" else said.partition("path=/x\n")[2]
    assert text.startswith("Traceback (most recent call last):")
    assert text.strip().endswith("RuntimeError: no")
