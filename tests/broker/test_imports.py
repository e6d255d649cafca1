"""A broker imports an optional package only when a flag needs it, and never the code of tests."""

import asyncio
import random
import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

import barnabas_broker
import barnabas_protocol
from barnabas_broker.preload import ENCODINGS
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.broker.all_apis import send_all
from tests.wire import PATIENCE, Wire

#: The command, which prints at its end what it has imported.
PROGRAM = "import sys; from barnabas_broker.__main__ import main\ntry: main()\nfinally: print(*sys.modules)"
#: Optional packages, and our modules that need them.
OPTIONAL = {
    "aetcd",
    "aiohttp",
    "grpc",
    "rich",
    "barnabas_broker.cluster.etcd",
    "barnabas_broker.http.endpoint",
}
TESTING = {"barnabas_broker.pytest_plugin", "barnabas_broker.testing", "pytest"}
#: Function-level imports that are there on purpose: pytest loads the plugin in every project, and the code that runs a
#: broker is imported only where one runs.
ALLOWED = {"pytest_plugin.py": 5, "structlog_alone.py": 1, "testing/broker.py": 1}


async def imported(*flags: str, use: Callable[[int], Awaitable[None]] | None = None) -> set[str]:
    """What a broker has imported when it has answered a request, and `use` has used its port."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, "--host", "127.0.0.1", "--port", "0", *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            port = int((await process.stdout.readline()).rpartition(b":")[2])
        async with await Wire.connect(port) as wire:
            assert (await wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse)).brokers
        if use is not None:
            await use(port)
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return set(printed.decode().splitlines()[-1].split())


async def test_a_broker_imports_all_of_itself_and_nothing_optional(tmp_path: Path) -> None:
    loaded = await imported("--data-dir", str(tmp_path / "data"))
    assert loaded >= {"barnabas_broker.handlers.fetch", "barnabas_broker.replication.fetcher", "structlog"}
    assert not loaded & (OPTIONAL | TESTING)


async def test_no_request_imports_anything(tmp_path: Path) -> None:
    """An import needs a descriptor: when there is none, the request of a client would fail."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")

    async def use(port: int) -> None:
        async with AsyncExitStack() as opened:
            wires = [await opened.enter_async_context(await Wire.connect(port)) for _ in range(100)]
            await send_all(wires, random.Random(seed), 4)

    flags = ("--set", "group.consumer.session.timeout.ms=45000", "--set", "offsets.topic.num.partitions=2")
    before = await imported("--data-dir", str(tmp_path / "unused"), *flags)
    after = await imported("--data-dir", str(tmp_path / "used"), *flags, use=use)
    assert after - before == set()


def test_all_encodings_of_the_sources_are_imported_at_the_start() -> None:
    used = set()
    for package in barnabas_broker, barnabas_protocol:
        for path in Path(str(package.__file__)).parent.rglob("*.py"):
            used |= set(re.findall(r"""(?:en|de)code\(["']([a-z][\w-]*)["']""", path.read_text()))
    assert {"utf-16-be", "utf-16-le", "unicode_escape"} <= used <= set(ENCODINGS)


async def test_http_needs_aiohttp_and_no_other_optional_package(tmp_path: Path) -> None:
    loaded = await imported("--data-dir", str(tmp_path / "data"), "--http-port", "0")
    assert loaded & OPTIONAL == {"aiohttp", "barnabas_broker.http.endpoint"}
    assert not loaded & TESTING


@pytest.mark.parametrize("name", sorted(OPTIONAL | TESTING))
def test_the_names_above_exist(name: str) -> None:
    assert find_spec(name) is not None


def test_modules_are_imported_at_the_top() -> None:
    folder = Path(barnabas_broker.__file__).parent
    found = {}
    for path in folder.rglob("*.py"):
        code = re.sub(r'""".*?"""', "", path.read_text("utf-8"), flags=re.DOTALL)
        code = re.sub(r"if TYPE_CHECKING:\n(    .*\n)+", "", code)
        if count := len(re.findall(r"^ +(?:from \S+ )?import \S", code, flags=re.MULTILINE)):
            found[str(path.relative_to(folder))] = count
    assert found == ALLOWED
