"""Log lines of the client: an event and its fields, written by structlog through the standard library's `logging`.

A library does not decide where a program's log goes, so nothing is configured globally: neither structlog nor
`logging`. A program that configures `logging` sees the logger ``barnabas_client`` and its children; without any
configuration, warnings go to stderr, which is what `logging` does by default. The text of a line is
``event  key=value key=value``. Each record also has `event` and `fields` as attributes, for handlers that need them
apart, such as one that writes JSON.
"""

import asyncio
import logging
import sys
import threading
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

#: Frames between the line that logs and :meth:`Logger._write`, and from there to the standard logger: each record names
#: the line that logs.
_ABOVE: Final = 3
_STACK_LEVEL: Final = _ABOVE + 3


def _render(log: Any, method: str, event_dict: Any) -> tuple[tuple[str, str], dict[str, Any]]:
    """Turn an event into the arguments of the standard logger's method."""
    event, exc_info = event_dict.pop("event"), event_dict.pop("exc_info", None)
    fields = dict(event_dict)
    pairs = import_module("structlog.processors").KeyValueRenderer()
    text = f"{event}  {pairs(log, method, event_dict)}" if fields else event
    extra = {"event": event, "fields": fields}
    return ("%s", text), {"exc_info": exc_info, "stacklevel": _STACK_LEVEL, "extra": extra}


class Logger:
    """Writes log lines to the standard logger `name`.

    A line below that logger's level is dropped before anything is rendered. The first line that is written imports
    structlog: it takes half as long as the rest of the client, and most programs write no line. In an event loop a
    thread imports it, because the loop would be held, and lines are rendered here until it is there.
    """

    def __init__(self, name: str) -> None:
        self._standard = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """Write a line that helps to find a fault."""
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Write a line about something that is as it should be."""
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Write a line about something that the client tries again, or that a user should change."""
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Write a line about something that failed."""
        self._write(logging.ERROR, event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """Write a line about something that failed, with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, {"exc_info": True, **fields})

    def _write(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if not self._standard.isEnabledFor(level):
            return
        try:
            lines = self._lines if _structlog_is_there() else None
        except (OSError, RuntimeError):  # no descriptor or thread is left, which this line may say
            lines = None
        if lines is not None:
            lines.log(level, event, **fields)
            return
        exc_info = fields.pop("exc_info", None)
        text = "  ".join((event, " ".join(f"{name}={value!r}" for name, value in fields.items()))) if fields else event
        extra = {"event": event, "fields": fields}
        self._standard.log(level, "%s", text, exc_info=exc_info, stacklevel=_ABOVE, extra=extra)

    @cached_property
    def _lines(self) -> "BoundLogger":
        structlog = import_module("structlog")
        made: BoundLogger = structlog.wrap_logger(
            self._standard, processors=[_render], wrapper_class=structlog.stdlib.BoundLogger, context_class=dict
        ).bind()
        return made


_lock: Final = threading.Lock()
_importing: threading.Thread | None = None


def _structlog_is_there() -> bool:
    """Whether structlog may be used now: it is imported, or the import may take its time here.

    Raises:
        RuntimeError: no thread can be started.
    """
    global _importing
    if _importing is None and "structlog.stdlib" not in sys.modules:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return True
        with _lock:
            if _importing is None:
                _importing = threading.Thread(target=_import_structlog, name="barnabas-structlog", daemon=True)
                _importing.start()
    return _importing is None or not _importing.is_alive()


def _import_structlog() -> None:
    try:
        import_module("structlog")
        import_module("structlog.processors")
    except OSError:
        pass  # the next line tries again


def logger(name: str) -> Logger:
    """Return a logger that writes to the standard logger `name`."""
    return Logger(name)
