"""Log lines reach the program's logging as text; the `broker` command writes them for people or for programs."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
import structlog

from barnabas_broker import logs
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config

TIME = re.compile(r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")

Configure = Callable[..., StringIO]


class Terminal(StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_pairs_follow_the_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "barnabas_broker.test"):
        logs.logger("test").info("joined", group="a b", generation=5, reason="", line="a\nb")
        logs.logger("test").debug("not shown")
    assert [line.getMessage() for line in caplog.records] == ["joined group='a b' generation=5 reason= line='a\\nb'"]


def test_bound_pairs_stand_in_every_line(caplog: pytest.LogCaptureFixture) -> None:
    log = logs.logger("test").bind(peer="127.0.0.1:1", client_id="c")
    log.warning("closed", reason="idle")
    log.bind(correlation_id=7).error("failed")
    assert [line.getMessage() for line in caplog.records] == [
        "closed peer=127.0.0.1:1 client_id=c reason=idle",
        "failed peer=127.0.0.1:1 client_id=c correlation_id=7",
    ]


def test_bound_context_variables_stand_in_every_line(caplog: pytest.LogCaptureFixture) -> None:
    with structlog.contextvars.bound_contextvars(node_id=3):
        logs.logger("test").warning("here")
    assert [line.getMessage() for line in caplog.records] == ["here node_id=3"]


def test_an_event_may_hold_percent_signs(caplog: pytest.LogCaptureFixture) -> None:
    logs.logger("test").warning("100 % of %s")
    assert caplog.records[0].getMessage() == "100 % of %s"


def test_a_record_names_the_line_that_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    log = logs.logger("test")
    for write in (log.warning, log.error, log.exception):
        write("here")
    assert {line.funcName for line in caplog.records} == {"test_a_record_names_the_line_that_wrote_it"}
    assert {line.name for line in caplog.records} == {"barnabas_broker.test"}


def test_a_record_carries_its_exception(caplog: pytest.LogCaptureFixture) -> None:
    error = RuntimeError("no")
    try:
        raise error
    except RuntimeError:
        logs.logger("test").exception("failed")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is error
    assert "RuntimeError: no" in caplog.text


#: Clears the screen, and forges a line.
HOSTILE = "g\x1b[2J\u202e\n2026-01-01T00:00:00.000000Z [error    ] disk failed"
ESCAPED = r"g\x1b[2J\u202e\n2026-01-01T00:00:00.000000Z [error    ] disk failed"


def test_text_of_clients_cannot_act_on_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    logs.logger("test").warning(f"event of {HOSTILE}", group=HOSTILE, short="\x9b31m", many=[HOSTILE])
    expected = f"event of {ESCAPED} group='{ESCAPED}' short='\\x9b31m' many=['{ESCAPED}']"
    assert caplog.records[0].getMessage() == expected


async def test_a_broker_in_a_process_of_others_configures_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root, ours = logging.getLogger(), logging.getLogger("barnabas_broker")
    before = list(root.handlers), root.level, list(ours.handlers), ours.propagate, logging.getLoggerClass()
    with caplog.at_level(logging.INFO, "barnabas_broker"):
        broker = await BrokerServer.start(Config(BROKER_KEYS, {"log.dir": str(tmp_path)}), port=0)
        await broker.stop()
    assert not structlog.is_configured()
    assert before == (list(root.handlers), root.level, list(ours.handlers), ours.propagate, logging.getLoggerClass())
    assert "broker started version=" in caplog.text


@pytest.fixture
def configured() -> Iterator[Configure]:
    """Configures logging as the command does, with lines that can be read."""
    root, ours = logging.getLogger(), logging.getLogger("barnabas_broker")
    handlers, level, our_level = list(root.handlers), root.level, ours.level

    def configure(form: str, least: str, kind: type[StringIO] = StringIO, broker: int | None = None) -> StringIO:
        for handler in list(root.handlers):
            root.removeHandler(handler)
        stream = kind()
        logs.configure(form, least, stream, broker)
        return stream

    yield configure
    for handler in list(root.handlers):
        root.removeHandler(handler)
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    ours.setLevel(our_level)


def test_a_line_for_people(configured: Configure) -> None:
    lines = configured("console", "info")
    logs.logger("test").info("started", node_id=1, where="a\nb")
    line = lines.getvalue()
    assert TIME.match(line)
    assert line[27:] == " [info     ] started                        node_id=1 where='a\\nb'\n"


def test_a_line_for_a_terminal_is_the_same_in_color(configured: Configure) -> None:
    lines = configured("console", "info", Terminal)
    logs.logger("test").error("started", node_id=1)
    line = re.sub(r"\x1b\[\d+m", "", lines.getvalue())
    assert "\x1b[" in lines.getvalue()
    assert line[27:] == " [error    ] started                        node_id=1\n"


def test_a_line_for_programs(configured: Configure) -> None:
    lines = configured("json", "info")
    logs.logger("test").info("started", node_id=1, error=ValueError("no"))
    said = json.loads(lines.getvalue())
    assert TIME.match(said.pop("timestamp"))
    assert said == {
        "node_id": 1,
        "error": "no",
        "event": "started",
        "level": "info",
        "logger": "barnabas_broker.test",
    }


@pytest.mark.parametrize("form", logs.FORMATS)
def test_every_line_has_the_tag_of_its_broker(configured: Configure, form: str) -> None:
    lines = configured(form, "info", broker=3)
    logs.logger("test").info("ours")
    logging.getLogger("asyncio").warning("of a library: %s", "x")
    logs.logger("test").info("about another broker", node_id=4)
    if form == "json":
        said = [(line["event"], line["broker"]) for line in map(json.loads, lines.getvalue().splitlines())]
        assert said == [("ours", 3), ("of a library: x", 3), ("about another broker", 3)]
    else:
        events = [line.partition("] [broker 3] ")[2].split("  ")[0] for line in lines.getvalue().splitlines()]
        assert events == ["ours", "of a library: x", "about another broker node_id=4"]


@pytest.mark.parametrize("form", logs.FORMATS)
def test_text_of_clients_stays_in_its_line(configured: Configure, form: str) -> None:
    lines = configured(form, "info", broker=3)
    logs.logger("test").info(HOSTILE, group=HOSTILE, error=ValueError(HOSTILE))
    logging.getLogger("asyncio").warning("of a library: %s", HOSTILE)
    text = lines.getvalue()
    assert len(text.splitlines()) == 2
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("form", logs.FORMATS)
def test_no_line_of_a_traceback_looks_like_a_log_line(configured: Configure, form: str) -> None:
    lines = configured(form, "info", broker=3)
    try:
        raise RuntimeError(HOSTILE)
    except RuntimeError:
        logs.logger("test").exception("failed")
    text = lines.getvalue()
    assert [bool(TIME.match(line)) for line in text.splitlines()].count(True) == (form == "console")
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("least", "events"),
    [
        ("debug", ["debug", "info", "warning", "error", "theirs"]),
        ("info", ["info", "warning", "error", "theirs"]),
        ("warning", ["warning", "error", "theirs"]),
        ("error", ["error"]),
    ],
)
def test_a_level_is_the_least_that_is_written(configured: Configure, least: str, events: list[str]) -> None:
    lines = configured("json", least)
    log = logs.logger("test")
    for write in (log.debug, log.info, log.warning, log.error):
        write(write.__name__)
    logging.getLogger("asyncio").info("not written")
    logging.getLogger("asyncio").warning("theirs")
    assert [json.loads(line)["event"] for line in lines.getvalue().splitlines()] == events


@pytest.mark.parametrize("form", logs.FORMATS)
@pytest.mark.parametrize("library", [False, True])
def test_an_exception_brings_its_traceback(configured: Configure, form: str, library: bool) -> None:
    lines = configured(form, "info")
    try:
        raise RuntimeError("no")
    except RuntimeError:
        if library:
            logging.getLogger("asyncio").exception("failed path=/x")
        else:
            logs.logger("test").exception("failed", path="/x")
    said = lines.getvalue()
    text = json.loads(said)["exception"] if form == "json" else said.partition("path=/x")[2].strip()
    assert text.startswith("Traceback (most recent call last):")
    assert text.strip().endswith("RuntimeError: no")
    assert said.count("Traceback") == 1
