"""Log lines: an event and ``key=value`` pairs, by structlog through the standard library's logging.

A broker in another program's process configures nothing: its lines reach that program's handlers, as text, with the
event and the pairs as the record's message. The `broker` command calls :func:`configure`, which writes them to stderr
(stdout is for results), for people on a console or as one JSON object a line.

Text from clients stands in many lines: group ids, client ids, reasons. A line on a console holds no character that a
terminal would act on, and no newline that would look like a second line; JSON escapes both by itself.

Context is bound when a line is written, not per request: ``log.bind(peer=..., correlation_id=...).warning(...)``.
"""

import logging
import sys
from io import StringIO
from typing import Any, Final, NamedTuple, TextIO

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter
from structlog.typing import EventDict, ExcInfo, Processor

from barnabas_protocol.printable import printable

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("console", "json")

#: All loggers of the broker are below this one.
_ROOT: Final = "barnabas_broker"
#: Frames of structlog between the line that logs and the standard logger, so that a record names that line.
_STACK_LEVEL: Final = 4
#: The key that names the broker that writes a line, in lines of the `broker` command.
_BROKER: Final = "broker"
#: Before each line of a traceback, so that no line of it looks like a log line.
_INDENT: Final = "    "
#: An event and its pairs as text, without time and level.
_TEXT: Final = structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, sort_keys=False)


class _Event(dict[str, Any]):
    """The message of a record: fields for our formatter, text for the handlers of other programs."""

    def __str__(self) -> str:
        return _TEXT(None, "", _escape(None, "", {key: value for key, value in self.items() if key != "exc_info"}))


class _Quoted(NamedTuple):
    """A value that the console shows between quotes, with escapes."""

    text: str

    def __repr__(self) -> str:
        return repr(self.text)


def _escape(logger: Any, name: str, event_dict: EventDict) -> EventDict:
    """Make the text of a console line safe for terminals. structlog leaves escape sequences as they are."""
    escaped: EventDict = {
        key: _Quoted(value) if isinstance(value, str) and not value.isprintable() else value
        for key, value in event_dict.items()
    }
    escaped["event"] = printable(str(event_dict["event"]))
    return escaped


def _tag(logger: Any, name: str, event_dict: EventDict) -> EventDict:
    """Put the broker before the event: with --cores, the lines of several brokers are mixed."""
    broker = event_dict.pop(_BROKER, None)
    if broker is not None:
        event_dict["event"] = f"[broker {broker}] {event_dict['event']}"
    return event_dict


def _traceback(stream: TextIO, exc_info: ExcInfo) -> None:
    """Write a traceback. Its last line is the error's text, which may hold text from clients."""
    text = StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    for line in text.getvalue().strip("\n").split("\n"):
        stream.write(f"\n{_INDENT}{printable(line)}")


def _to_record(logger: logging.Logger, name: str, event_dict: EventDict) -> tuple[tuple[EventDict], dict[str, Any]]:
    """Hand an event to the standard logger, in the shape that :class:`ProcessorFormatter` reads."""
    message, options = ProcessorFormatter.wrap_for_formatter(logger, name, _Event(event_dict))
    return message, {**options, "exc_info": event_dict.get("exc_info"), "stacklevel": _STACK_LEVEL}


_PROCESSORS: Final[tuple[Processor, ...]] = (
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    _to_record,
)


def logger(name: str) -> BoundLogger:
    """The logger of a part of the broker. It does not depend on structlog's global configuration.

    Args:
        name: of the part; the standard logger is ``barnabas_broker.NAME``.
    """
    bound: BoundLogger = structlog.wrap_logger(
        logging.getLogger(f"{_ROOT}.{name}"),
        processors=_PROCESSORS,
        wrapper_class=BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=False,
    ).bind()
    return bound


def configure(form: str, level: str, stream: TextIO | None = None, broker: int | None = None) -> None:
    """Set up logging for the whole process. Lines of libraries are written from warnings on.

    Args:
        form: one of :data:`FORMATS`.
        level: one of :data:`LEVELS`.
        stream: where the lines are written; None for stderr.
        broker: the id of the broker that writes them, which stands in every line.
    """
    stream = sys.stderr if stream is None else stream

    def add_broker(logger: logging.Logger, name: str, event_dict: EventDict) -> EventDict:
        return event_dict if broker is None else {**event_dict, _BROKER: broker}

    shared: tuple[Processor, ...] = (
        ProcessorFormatter.remove_processors_meta,
        add_broker,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    )
    renderer: tuple[Processor, ...]
    if form == "json":
        renderer = (structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str))
        shared = (structlog.stdlib.add_logger_name, *shared)
    else:
        console = structlog.dev.ConsoleRenderer(colors=stream.isatty(), sort_keys=False, exception_formatter=_traceback)
        renderer = (_tag, _escape, console)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(ProcessorFormatter(processors=(*shared, *renderer)))
    least: int = getattr(logging, level.upper())
    logging.basicConfig(handlers=[handler], level=max(least, logging.WARNING))
    logging.getLogger(_ROOT).setLevel(least)
