"""kafkajs, a client for Node.js: the application kafkajs/talk.js, with the package from npm in the cache folder.

Skipped where node or npm is missing, or where npm cannot install the package.
"""

import functools
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.interop import process
from tests.interop.cache import Unavailable, cached
from tests.interop.round_trips import by_kafkajs
from tests.interop.server import Server
from tests.needs import missing

pytestmark = pytest.mark.interop

VERSION: Final = "2.2.4"


def _install(npm: str, folder: Path, timeout: float) -> None:
    quiet = ("--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0")
    arguments = ("install", *quiet, "--prefix", str(folder))
    try:
        done = process.run([npm, *arguments, f"kafkajs@{VERSION}"], timeout)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"npm has not installed kafkajs within {timeout:.0f} s") from error
    if done.returncode != 0:
        raise Unavailable("npm could not install kafkajs")


@pytest.fixture(scope="module")
def kafkajs() -> Path:
    """Folder of the kafkajs package."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        missing("kafkajs needs node and npm on the PATH: apt install nodejs npm", on_this_machine=False)
    try:
        return cached(f"kafkajs-{VERSION}", VERSION, functools.partial(_install, npm), 60) / "node_modules" / "kafkajs"
    except Unavailable as error:
        missing(f"{error.reason}: check the network, or put the package into the cache", on_this_machine=False)


def test_an_application(kafkajs: Path, server: Server, fresh: str) -> None:
    result = by_kafkajs(kafkajs, server.bootstrap_servers, fresh, {}, 60)
    assert (result["written"], result["committed"]) == (100, 100)
    assert (result["brokers"], result["partitions"]) == (1, [0, 1, 2])
    assert (result["state"], result["members"]) == ("Stable", 1)
    assert fresh not in result["topics"]
