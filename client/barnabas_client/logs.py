"""Log lines of the client: what happened and ``key=value`` pairs, through the standard library's logging.

A library must not decide where a program's log goes, so nothing is configured globally: a program that uses `logging`
sees the logger ``barnabas_client``, one that does not sees warnings on stderr, as `logging` has it. Each record carries
`event` and `fields` as attributes as well, for handlers that write them apart, such as one that writes JSON.
"""

import logging
from typing import Any, Final

#: Frames between the line that logs and the standard logger, so that a record names that line.
_STACK_LEVEL: Final = 3


class Logger:
    """Writes ``event  key=value`` to a standard logger."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: Any) -> None:
        """What helps to find a mistake."""
        self._write(logging.DEBUG, event, None, fields)

    def info(self, event: str, **fields: Any) -> None:
        """What is as it should be."""
        self._write(logging.INFO, event, None, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """What someone should look at."""
        self._write(logging.WARNING, event, None, fields)

    def error(self, event: str, *, exc_info: BaseException | None = None, **fields: Any) -> None:
        """What went wrong, with the traceback of `exc_info`."""
        self._write(logging.ERROR, event, exc_info, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """What went wrong, with the traceback of the exception that is being handled."""
        self._write(logging.ERROR, event, True, fields)

    def _write(self, level: int, event: str, exc_info: BaseException | bool | None, fields: dict[str, Any]) -> None:
        if not self._logger.isEnabledFor(level):
            return
        pairs = " ".join(
            f"{key}={value!r}" if isinstance(value, str) else f"{key}={value}" for key, value in fields.items()
        )
        self._logger.log(
            level,
            "%s",
            f"{event}  {pairs}" if pairs else event,
            exc_info=exc_info,
            stacklevel=_STACK_LEVEL,
            extra={"event": event, "fields": fields},
        )


def logger(name: str) -> Logger:
    """A logger that writes to the standard logger `name`."""
    return Logger(name)
