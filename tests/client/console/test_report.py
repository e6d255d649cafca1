"""`barnabas groups report`: which events are in the file, and what is refused."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas_client import Consumer
from tests.client.cli.conftest import Cli, cli, numbers

__all__ = ["cli", "numbers"]


@pytest.fixture
async def member(cli: Cli, numbers: None) -> AsyncIterator[Consumer]:
    """The member of the group "reported"."""
    async with Consumer("t", bootstrap_servers=cli.address, group_id="reported", client_id="worker") as consumer:
        yield consumer


@pytest.mark.usefixtures("member")
async def test_the_rebalances_of_a_group_are_in_the_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    command = ("groups", "report", "reported", "-o", str(file), "--since", "10m")
    (line,) = (await cli(*command)).lines
    assert line.startswith(f"{file}: 1 rebalance from ")
    text = file.read_text("utf-8")
    assert "reported" in text and "worker (127.0.0.1)" in text
    told = (await cli(*command, "--source", "offsets", "--json")).json
    assert told == {"group": "reported", "file": str(file), "bytes": file.stat().st_size, "rebalances": 1}
    assert "worker (127.0.0.1)" in file.read_text("utf-8")


@pytest.mark.usefixtures("member")
async def test_nothing_is_written_if_there_is_nothing_to_tell(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    write = ("-o", str(file))
    before = await cli("groups", "report", "reported", *write, "--since", "2h", "--until", "1h", status=1)
    assert "nothing is known of group 'reported' from " in before.err
    unknown = await cli("groups", "report", "none", *write, status=1)
    assert "nothing is known of group 'none' from " in unknown.err
    backwards = await cli("groups", "report", "reported", *write, "--since", "1h", "--until", "2h", status=2)
    assert "which is not after" in backwards.err
    assert not file.exists()
