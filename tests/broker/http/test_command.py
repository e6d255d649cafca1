"""The `broker` command with --http-port: output, errors and imported modules."""

import asyncio
import os
import re
import socket
import sys
from pathlib import Path

import pytest

from barnabas_broker.sockets import program_on
from tests.wire import PATIENCE

pytestmark = pytest.mark.programs

#: Runs the command as if the `http` extra were not installed.
WITHOUT_AIOHTTP = "import sys; sys.modules['aiohttp'] = None; from barnabas_broker.__main__ import main; main()"
#: Serves without --http-port and prints whether aiohttp was imported.
LOADED = """
import asyncio, sys
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
async def main():
    broker = await BrokerServer.start(Config(BROKER_KEYS, {"log.dir": sys.argv[1]}), port=0)
    await broker.stop()
asyncio.run(main())
print("aiohttp" in sys.modules)
"""


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")},
    )


async def end(process: asyncio.subprocess.Process) -> tuple[int | None, str, str]:
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def run(*arguments: str) -> tuple[int | None, str, str]:
    return await end(await start(*arguments))


def command(data: Path, *flags: str) -> list[str]:
    return ["-m", "barnabas_broker", "--port", "0", "--data-dir", str(data), *flags]


async def test_the_chosen_port_is_printed(tmp_path: Path) -> None:
    process = await start(*command(tmp_path, "--http-port", "0"))
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        lines = [(await process.stdout.readline()).decode() for _ in range(2)]
        assert re.fullmatch(r"barnabas: listening on 127\.0\.0\.1:\d+\n", lines[0])
        found = re.fullmatch(r"barnabas: http on 127\.0\.0\.1:(\d+)\n", lines[1])
        assert found
        reader, writer = await asyncio.open_connection("127.0.0.1", int(found[1]))
        writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
        assert b" 200 OK\r\n" in await reader.read()
        writer.close()
        await writer.wait_closed()
    process.terminate()
    status, _, err = await end(process)
    assert status == 0, err


async def test_the_error_without_the_extra_says_what_to_install(tmp_path: Path) -> None:
    status, out, err = await run("-c", WITHOUT_AIOHTTP, "--port", "0", "--data-dir", str(tmp_path), "--http-port", "0")
    assert (status, out) == (1, "")
    assert err == "broker: --http-port needs aiohttp: pip install 'barnabas[http]'\n"
    assert os.listdir(tmp_path) == [], "nothing was opened"


async def test_a_busy_port_is_rejected(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        status, _, err = await run(*command(tmp_path, "--http-port", str(port)))
        remedy = f"stop {program_on(port) or 'the program that uses it'}, or choose another port"
    expected = f"broker: cannot listen on 127.0.0.1:{port}: Address already in use; {remedy}\n"
    assert (status, err) == (1, expected)


async def test_a_bad_port_is_rejected(tmp_path: Path) -> None:
    status, _, err = await run(*command(tmp_path, "--http-port", "70000"))
    assert (status, err) == (2, "broker: --http-port 70000: must be from 0 to 65535\n")


async def test_aiohttp_is_not_imported_without_the_endpoint(tmp_path: Path) -> None:
    status, out, err = await run("-c", LOADED, str(tmp_path / "data"))
    assert status == 0, err
    assert out.splitlines()[-1] == "False"
