"""Barnabas as a server for tests and benchmarks, with the same interface as `ApacheKafka`.

with BarnabasBroker({"num.partitions": 6}) as broker:
    Producer({"bootstrap.servers": broker.bootstrap_servers})
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.interop.server import Server

TEST_DEFAULTS: Final = {"group.initial.rebalance.delay.ms": "0"}


class BarnabasBroker(Server):
    """A Barnabas broker in its own process. `overrides` become `--set key=value`; `python` has it installed."""

    NAME: ClassVar[str] = "Barnabas"

    def __init__(self, *args: Any, python: str = sys.executable, **options: Any) -> None:
        self._python = python
        super().__init__(*args, **options)

    @property
    def log_dir(self) -> Path:
        return self.folder / "data"

    @property
    def server_log(self) -> Path:
        return self.console

    def _prepare(self) -> None:
        self.log_dir.mkdir(exist_ok=True)

    def _command(self) -> Sequence[str]:
        settings = {**TEST_DEFAULTS, **self._overrides}
        return [
            *(self._python, "-m", "barnabas_broker", "--host", "127.0.0.1", "--port", str(self.port)),
            *("--data-dir", str(self.log_dir)),
            *(word for key, value in settings.items() for word in ("--set", f"{key}={value}")),
        ]
