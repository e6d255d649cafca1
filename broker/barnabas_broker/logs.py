"""Log lines: what happened and ``key=value`` pairs, through the standard library's logging.

Where the lines go is the program's business: the `broker` command calls :func:`configure`, which writes them to stderr
(stdout is for answers), for people on a console or as one JSON object a line; a program that has a broker in its own
process finds them in `logging`. Each record carries `event` and `fields` as attributes, for handlers that write them
apart.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("console", "json")

#: All loggers of the broker are below this one.
_ROOT: Final = "barnabas_broker"
#: Frames between the line that logs and the standard logger, so that a record names that line.
_STACK_LEVEL: Final = 3
#: Columns of an event on a console; its pairs follow.
_EVENT_WIDTH: Final = 30
_LEVEL_WIDTH: Final = 9
#: ANSI's: what a level looks like on a terminal, and what ends that.
_COLORS: Final = {"debug": "\x1b[32m", "info": "\x1b[32m", "warning": "\x1b[33m", "error": "\x1b[31m"}
_BOLD, _DIM, _PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[0m"


class Logger:
    """Writes events to a standard logger.

    Args:
        name: of the part of the broker that speaks.
    """

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}")

    def debug(self, event: str, /, **fields: Any) -> None:
        """What helps to find a mistake."""
        self._write(logging.DEBUG, event, False, fields)

    def info(self, event: str, /, **fields: Any) -> None:
        """What is as it should be."""
        self._write(logging.INFO, event, False, fields)

    def warning(self, event: str, /, **fields: Any) -> None:
        """What someone should look at."""
        self._write(logging.WARNING, event, False, fields)

    def error(self, event: str, /, **fields: Any) -> None:
        """What went wrong."""
        self._write(logging.ERROR, event, False, fields)

    def exception(self, event: str, /, **fields: Any) -> None:
        """What went wrong, with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, True, fields)

    def _write(self, level: int, event: str, exc_info: bool, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(
                level,
                "%s",
                " ".join((event, *pairs(fields))),
                exc_info=exc_info,
                stacklevel=_STACK_LEVEL,
                extra={"event": event, "fields": fields},
            )


def logger(name: str) -> Logger:
    """The logger of a part of the broker."""
    return Logger(name)


def pairs(fields: dict[str, Any]) -> list[str]:
    """``key=value`` for each field; quoted where the value would not be seen to end."""
    texts = ((key, str(value)) for key, value in fields.items())
    return [f"{key}={text if text and text.isprintable() and ' ' not in text else repr(text)}" for key, text in texts]


class ConsoleFormatter(logging.Formatter):
    """Lines for people: time, level, event, pairs.

    Args:
        colors: whether they stand on a terminal.
    """

    def __init__(self, colors: bool) -> None:
        super().__init__()
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _said(record)
        level, time = record.levelname.lower(), _time(record)
        shown = f"{level:{_LEVEL_WIDTH}}"
        event = f"{event:{_EVENT_WIDTH}}"
        if self._colors:
            time, event = f"{_DIM}{time}{_PLAIN}", f"{_BOLD}{event}{_PLAIN}"
            shown = f"{_COLORS.get(level, _BOLD)}{shown}{_PLAIN}"
        line = " ".join((time, f"[{shown}]", event, *pairs(fields))).rstrip()
        if record.exc_info:
            line = f"{line}\n{self.formatException(record.exc_info)}"
        return line


class JsonFormatter(logging.Formatter):
    """Lines for programs: an object of the fields, with event, level, logger, timestamp and perhaps exception."""

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _said(record)
        told = {
            **fields,
            "event": event,
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": _time(record),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


def _said(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """Event and fields of a record; others than ours, asyncio's for instance, have a text only."""
    said = vars(record)
    return (said["event"], said["fields"]) if "fields" in said else (record.getMessage(), {})


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def configure(form: str, level: str, stream: TextIO = sys.stderr) -> None:
    """Set up logging for the whole process. Libraries are heard from warnings on.

    Args:
        form: one of :data:`FORMATS`.
        level: one of :data:`LEVELS`.
        stream: where the lines go.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else ConsoleFormatter(stream.isatty()))
    least: int = getattr(logging, level.upper())
    logging.basicConfig(handlers=[handler], level=max(least, logging.WARNING))
    logging.getLogger(_ROOT).setLevel(least)
