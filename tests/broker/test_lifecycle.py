"""The `broker` command from start to stop, as an operator sees it: its log, signals, and streams that are closed."""

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from barnabas_protocol.version import VERSION
from tests.broker.command import StartCommand, logged, stop
from tests.certificates import Authority
from tests.cluster.harness import eventually
from tests.wire import PATIENCE

pytestmark = pytest.mark.programs

SECONDS = r"\d+\.\d{3}s"
LISTENING = "barnabas: listening on "


async def test_the_log_says_what_starts_and_why_it_stops(start_command: StartCommand, tmp_path: Path) -> None:
    process = await start_command(tmp_path / "data", "--http-port", "0")
    started = await logged(process, "broker started")
    for pair in (
        f" version={VERSION} ",
        f" pid={process.pid} ",
        f" data={tmp_path / 'data'} ",
        r" cluster_id=[\w-]{22} ",
        r" listeners=PLAINTEXT://127\.0\.0\.1:\d+ ",
        r" advertised=PLAINTEXT://127\.0\.0\.1:\d+ ",
        r" http=127\.0\.0\.1:\d+ ",
        f" recovery={SECONDS} took={SECONDS}$",
    ):
        assert re.search(pair, started), (pair, started)
    status, rest = await stop(process)
    assert status == 0
    assert re.search(f"broker stops .* reason=SIGTERM uptime={SECONDS}\n", rest)
    assert re.search(f"broker stopped .* reason=SIGTERM took={SECONDS}\n$", rest)


async def test_a_first_start_says_nothing_about_the_shutdown_before(
    start_command: StartCommand, tmp_path: Path
) -> None:
    process = await start_command(tmp_path / "data")
    assert "clean" not in await logged(process, "log directory opened")
    await stop(process)


async def test_a_closed_terminal_ends_it_cleanly(start_command: StartCommand, tmp_path: Path) -> None:
    # Tests that run under nohup ignore it, and so do their children.
    process = await start_command(tmp_path / "data", prepare=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
    await logged(process, "broker started")
    status, rest = await stop(process, signal.SIGHUP)
    assert status == 0
    assert "reason=SIGHUP" in rest
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


async def test_nohup_is_respected(start_command: StartCommand, tmp_path: Path) -> None:
    process = await start_command(tmp_path / "data", prepare=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    await logged(process, "broker started")
    process.send_signal(signal.SIGHUP)
    status, rest = await stop(process)
    assert status == 0
    assert "reason=SIGTERM" in rest


def with_tls(tmp_path: Path) -> tuple[str, ...]:
    keystore = Authority(tmp_path).issue("broker")
    given = (
        "listeners=SSL://127.0.0.1:0",
        "security.inter.broker.protocol=SSL",
        f"ssl.keystore.location={keystore}",
    )
    return tuple(word for each in given for word in ("--set", each))


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
async def test_with_tls_a_hangup_reloads_certificates(
    start_command: StartCommand, tmp_path: Path, before: signal.Handlers
) -> None:
    flags = with_tls(tmp_path)
    process = await start_command(tmp_path / "data", *flags, prepare=lambda: signal.signal(signal.SIGHUP, before))
    await listening(process)
    process.send_signal(signal.SIGHUP)
    assert "listener=SSL" in await logged(process, "certificates reloaded")
    (tmp_path / "broker.pem").unlink()
    process.send_signal(signal.SIGHUP)
    assert "No such file" in await logged(process, "certificates not reloaded, the earlier ones stay")
    status, rest = await stop(process)
    assert status == 0
    assert "reason=SIGTERM" in rest


async def listening(process: asyncio.subprocess.Process) -> None:
    """Wait until the broker has said where it listens, which it does last."""
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert (await process.stdout.readline()).decode().startswith(LISTENING)


async def test_with_tls_a_closed_terminal_still_ends_it(start_command: StartCommand, tmp_path: Path) -> None:
    flags = with_tls(tmp_path)
    ours, terminal = os.openpty()

    def prepare() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.dup2(terminal, 0)

    process = await start_command(tmp_path / "data", *flags, prepare=prepare)
    await listening(process)
    os.close(terminal)
    os.close(ours)
    status, rest = await stop(process, signal.SIGHUP)
    assert status == 0
    assert "reason=SIGHUP" in rest


@pytest.mark.parametrize("closed", [(0,), (0, 1)])
async def test_closed_streams_are_no_reason_to_stop(
    start_command: StartCommand, tmp_path: Path, closed: tuple[int, ...]
) -> None:
    def close() -> None:
        for each in closed:
            os.close(each)

    process = await start_command(tmp_path / "data", prepare=close)
    await logged(process, "broker started")
    status, rest = await stop(process)
    assert status == 0, rest
    assert "broker stopped" in rest


async def test_a_closed_log_is_no_reason_to_stop(start_command: StartCommand, tmp_path: Path) -> None:
    process = await start_command(tmp_path / "data", prepare=lambda: os.close(2))
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        assert (await process.stdout.readline()).decode().startswith(LISTENING)
    assert await stop(process) == (0, "")


@pytest.mark.parametrize("log_too", [False, True])
async def test_a_reader_that_is_gone_is_no_reason_to_stop(
    start_command: StartCommand, tmp_path: Path, log_too: bool
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    prepare = (lambda: os.dup2(1, 2)) if log_too else None
    process = await start_command(tmp_path / "data", "--http-port", "0", stdout=writer, prepare=prepare)
    os.close(writer)
    if log_too:
        # There is no output to wait for.
        async def opened() -> bool:
            return (tmp_path / "data" / "meta.properties").exists()

        await eventually("the broker starts", opened)
    else:
        await logged(process, "broker started")
    status, rest = await stop(process)
    assert status == 0, rest
