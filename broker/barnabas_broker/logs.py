"""Log lines: for people on a console, or one JSON object a line. They go to stderr; stdout is for answers."""

import logging
import sys
from typing import Final

import structlog
from structlog.typing import Processor

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("console", "json")


def configure(form: str, level: str) -> None:
    """Set up logging for the whole process.

    Args:
        form: one of :data:`FORMATS`.
        level: one of :data:`LEVELS`.
    """
    stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
    shared: list[Processor] = [structlog.stdlib.add_log_level, stamp]
    last: list[Processor]
    if form == "json":
        last = [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    else:
        colors = sys.stderr.isatty()
        last = [
            structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),
        ]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
