"""Log lines of the client: structlog's key=value pairs, through the standard library's logging.

A library must not decide where a program's log goes, so nothing is configured globally: a program that uses `logging`
sees the logger ``barnabas_client``, one that does not sees warnings on stderr, as `logging` has it.
"""

import logging
from typing import cast

import structlog
from structlog.typing import EventDict, WrappedLogger


def _render(_: WrappedLogger, __: str, event: EventDict) -> str:
    """``what happened  key=value key=value``, and below it a traceback if there is one."""
    head, trace = str(event.pop("event", "")), event.pop("exception", None)
    pairs = " ".join(f"{key}={value!r}" if isinstance(value, str) else f"{key}={value}" for key, value in event.items())
    line = f"{head}  {pairs}" if pairs else head
    return f"{line}\n{trace}" if trace else line


def logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger that writes ``event key=value`` to the standard logger `name`."""
    wrapped = structlog.wrap_logger(
        logging.getLogger(name),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            _render,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    return cast(structlog.stdlib.BoundLogger, wrapped)
