"""The `barnabas` command, in this process, against a broker in the test's event loop, or Apache Kafka."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from barnabas_client import Producer
from barnabas_client.cli import main

#: Seconds that a command may take.
PATIENCE = 60.0


@dataclass(frozen=True)
class Printed:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Cli:
    """Runs commands; one at a time."""

    def __init__(self, address: str, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.address = address
        self._capsys = capsys
        self._patch = patch

    async def __call__(self, *argv: str, status: int = 0, stdin: Path | None = None) -> Printed:
        """Run a command and compare its exit status."""
        with self._patch.context() as patch:
            if stdin is not None:
                patch.setattr("sys.stdin", stdin.open())
            try:
                async with asyncio.timeout(PATIENCE):
                    code = await asyncio.to_thread(main, list(argv))
            finally:
                if stdin is not None:
                    sys.stdin.close()
        captured = self._capsys.readouterr()
        printed = Printed(code, captured.out, captured.err)
        assert code == status, printed
        return printed

    async def start(self, *argv: str) -> asyncio.subprocess.Process:
        """Start a command as a process of its own."""
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "barnabas_client.cli", *argv, stdin=pipe, stdout=pipe, stderr=pipe
        )


@pytest.fixture
def cli(empty_servers: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", empty_servers)
    return Cli(empty_servers, capsys, monkeypatch)


@pytest.fixture
async def numbers(cli: Cli) -> None:
    """A topic "t" of two partitions: 0 to 4 in the first, 5 to 7 in the second, a second apart from time 1,000 on."""
    await cli("topics", "create", "t", "-p", "2")
    async with Producer(bootstrap_servers=cli.address) as producer:
        for number in range(8):
            await producer.send_and_wait(
                "t",
                b"%d" % number,
                key=b"k%d" % number,
                partition=int(number >= 5),
                timestamp_ms=1_000 * (number + 1),
                headers=[("n", b"%d" % number)],
            )
