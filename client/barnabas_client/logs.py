"""Log lines of the client: an event and its fields, written by structlog through the standard library's `logging`.

A library does not decide where a program's log goes, so nothing is configured globally: neither structlog nor
`logging`. A program that configures `logging` sees the logger ``barnabas_client`` and its children; without any
configuration, warnings go to stderr, which is what `logging` does by default. The text of a line is
``event  key=value key=value``. Each record also has `event` and `fields` as attributes, for handlers that need them
apart, such as one that writes JSON.
"""

import logging
from typing import Any, Final, cast

import structlog
from structlog.processors import KeyValueRenderer
from structlog.stdlib import BoundLogger, filter_by_level
from structlog.typing import EventDict, WrappedLogger

#: Frames between the line that logs and the standard logger, which makes each record name that line.
_STACK_LEVEL: Final = 4

_pairs: Final = KeyValueRenderer()


def _render(log: WrappedLogger, method: str, event_dict: EventDict) -> tuple[tuple[str, str], dict[str, Any]]:
    """Turn an event into the arguments of the standard logger's method."""
    event, exc_info = event_dict.pop("event"), event_dict.pop("exc_info", None)
    fields = dict(event_dict)
    text = f"{event}  {_pairs(log, method, event_dict)}" if fields else event
    extra = {"event": event, "fields": fields}
    return ("%s", text), {"exc_info": exc_info, "stacklevel": _STACK_LEVEL, "extra": extra}


def logger(name: str) -> BoundLogger:
    """Return a logger that writes to the standard logger `name`.

    A line below that logger's level is dropped before anything is rendered.
    """
    lazy = structlog.wrap_logger(
        logging.getLogger(name), processors=[filter_by_level, _render], wrapper_class=BoundLogger, context_class=dict
    )
    return cast(BoundLogger, lazy.bind())
