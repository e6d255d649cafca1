"""`barnabas produce` and `barnabas consume`."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.client.cli.conftest import PATIENCE, Cli
from tests.sampling import slow

FORMAT = r"%t:%p:%o %k=%v %T %K %V %h\n"


async def test_lines_become_records(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"a\tone\nb\tNIL\r\nNIL\ttwo\tparts")
    await cli("topics", "create", "t")
    quiet = await cli("produce", "t", str(file), "-K", r"\t", "--null", "NIL", "-H", "x=1", "-H", "x=2", "-z", "zstd")
    assert (quiet.out, quiet.err) == ("", "")
    shown = await cli("consume", "t", "--from-beginning", "-e", "-f", r"%k|%K|%v|%V|%h\n")
    assert shown.lines == ["a|1|one|3|x=1,x=2", "b|1||-1|x=1,x=2", "|-1|two\tparts|9|x=1,x=2"]


async def test_standard_input_is_read_from_a_file_and_from_a_pipe(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("1\n2\n")
    await cli("topics", "create", "t")
    result = (await cli("produce", "t", "--json", stdin=file)).json
    assert (result["topic"], result["records"], result["bytes"], result["error"]) == ("t", 2, 2, None)
    process = await cli.start("produce", "t")
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate(b"3\n4")
    assert (process.returncode, out, err) == (0, b"", b"")
    assert (await cli("consume", "t", "--from-beginning", "-e")).lines == ["1", "2", "3", "4"]


async def test_empty_input_is_reported(cli: Cli, tmp_path: Path) -> None:
    await cli("topics", "create", "t")
    empty = tmp_path / "empty"
    empty.touch()
    note = "nothing was read, so no record was written to t\n"
    for source in (Path("/dev/null"), empty):
        assert (await cli("produce", "t", stdin=source)).err == note
        assert (await cli("produce", "t", str(source))).err == note
    assert (await cli("produce", "t", "--json", stdin=empty)).json["records"] == 0


@pytest.mark.programs
@pytest.mark.parametrize(
    ("closed", "written"), [slow(("<&-", 0)), slow((">&-", 1)), slow(("2>&-", 1)), (">&- 2>&-", 1)]
)
async def test_a_closed_standard_stream_is_like_an_empty_one(cli: Cli, closed: str, written: int) -> None:
    await cli("topics", "create", "t")
    command = f"echo line | {sys.executable} -m barnabas_client.cli produce t {closed}"
    process = await asyncio.create_subprocess_shell(command, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(PATIENCE):
        _, err = await process.communicate()
    assert (process.returncode, b"nothing was read" in err) == (0, not written)
    assert (await cli("consume", "t", "--from-beginning", "-e")).lines == ["line"] * written


@pytest.mark.programs
async def test_a_failure_is_reported_although_the_output_is_closed(cli: Cli) -> None:
    await cli("topics", "create", "t", "-c", "max.message.bytes=200")
    read, write = os.pipe()
    os.close(read)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "barnabas_client.cli", "produce", "t", "--json"),
        stdin=asyncio.subprocess.PIPE,
        stdout=write,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(write)
    async with asyncio.timeout(PATIENCE):
        _, err = await process.communicate(b"x" * 500)
    assert process.returncode == 1
    assert err.count(b"MESSAGE_TOO_LARGE") == 1
    assert err.startswith(b"barnabas: 0 records were written to t, 1 was not: ")
    assert err.count(b"\n") == 1


async def test_a_line_that_cannot_be_sent_ends_the_command(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("k:v\nnothing\n")
    await cli("topics", "create", "t", "-c", "max.message.bytes=200")
    failed = await cli("produce", "t", str(file), "-K", ":", status=1)
    assert failed.err.startswith("barnabas: line 2 has no key separator ':'")
    assert (await cli("consume", "t", "--from-beginning", "-e")).lines == ["v"]
    file.write_text("x" * 500)
    failed = await cli("produce", "t", str(file), status=1)
    assert failed.err.startswith("barnabas: 0 records were written to t, 1 was not: ")
    assert "max.message.bytes" in failed.err
    assert failed.err.count("\n") == 1
    # The limit of a record is the topic's, not one of the producer that no option raises.
    file.write_text("x" * 3_000_000)
    assert "max.message.bytes" in (await cli("produce", "t", str(file), status=1)).err
    assert "only 1" in (await cli("produce", "t", str(file), "-p", "7", status=1)).err
    assert "No such file" in (await cli("produce", "t", str(tmp_path / "none"), status=1)).err


@pytest.mark.usefixtures("numbers")
class TestConsume:
    async def values(self, cli: Cli, *arguments: str) -> list[str]:
        return sorted((await cli("consume", "t", "-e", *arguments)).lines)

    async def test_where_to_start(self, cli: Cli) -> None:
        assert await self.values(cli, "--from-beginning") == list("01234567")
        assert await self.values(cli) == []
        assert await self.values(cli, "-o", "beginning") == list("01234567")
        assert await self.values(cli, "-o", "end") == []
        assert await self.values(cli, "-o", "2") == list("2347")
        assert await self.values(cli, "-o", "-1") == list("47")
        assert await self.values(cli, "--since", "1970-01-01T00:00:05Z") == list("4567")
        assert await self.values(cli, "--since", "3000") == list("234567")
        assert await self.values(cli, "--since", "1d") == []
        assert await self.values(cli, "--from-beginning", "-p", "1") == list("567")

    async def test_number_and_format_of_records(self, cli: Cli) -> None:
        assert len(await self.values(cli, "--from-beginning", "-n", "3")) == 3
        shown = await cli("consume", "t", "-o", "1", "-p", "1", "-n", "1", "-f", FORMAT)
        assert shown.out == "t:1:1 k6=6 7000 2 1 n=6\n"
        as_data = await cli("consume", "t", "-o", "1", "-p", "1", "-n", "1", "--json")
        assert as_data.json == {
            "topic": "t",
            "partition": 1,
            "offset": 1,
            "timestamp": 7000,
            "key": "k6",
            "value": "6",
            "headers": [["n", "6"]],
        }

    async def test_a_group_continues_at_its_committed_offsets(self, cli: Cli) -> None:
        first = (await cli("consume", "t", "-g", "g", "--from-beginning", "-n", "3")).lines
        rest = (await cli("consume", "t", "-g", "g", "-e")).lines
        assert len(first) == 3
        assert sorted(first + rest) == list("01234567")

    async def test_invalid_options(self, cli: Cli) -> None:
        assert "from the group" in (await cli("consume", "t", "-g", "g", "-o", "1", status=2)).err
        assert "exclude each other" in (await cli("consume", "t", "--json", "-f", "%v", status=2)).err
        assert "the format has %z" in (await cli("consume", "t", "-f", "%z", status=2)).err
        assert "neither a number" in (await cli("consume", "t", "-o", "x", status=2)).err
        assert "UNKNOWN_TOPIC" in (await cli("consume", "x", status=1)).err
        assert "UNKNOWN_TOPIC" in (await cli("consume", "x", "-g", "g", status=1)).err
        assert (
            "consume t-5: UNKNOWN_TOPIC_OR_PARTITION, it has 2" in (await cli("consume", "t", "-p", "5", status=1)).err
        )

    async def test_control_c_is_quiet_and_commits(self, cli: Cli) -> None:
        process = await cli.start("consume", "t", "-g", "g", "--from-beginning")
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            for _ in range(8):
                await process.stdout.readline()
            process.send_signal(signal.SIGINT)
            out, err = await process.communicate()
        assert (process.returncode, out, err) == (130, b"", b"")
        (group,) = (await cli("groups", "describe", "g", "--json")).json
        assert group["lag"] == 0
        assert [row["current_offset"] for row in group["offsets"]] == [5, 3]

    async def test_a_closed_pipe_ends_the_command_quietly(self, cli: Cli) -> None:
        read, write = os.pipe()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "barnabas_client.cli", "consume", "t", "--from-beginning"),
            stdout=write,
            stderr=asyncio.subprocess.PIPE,
        )
        os.close(write)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE):
            assert await loop.run_in_executor(None, os.read, read, 1)
            os.close(read)
            _, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
