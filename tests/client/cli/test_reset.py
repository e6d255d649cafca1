"""`barnabas groups reset-offsets`."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from barnabas_client import Consumer
from tests.client.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("group")


@pytest.fixture
async def group(cli: Cli, numbers: None) -> None:
    """A group that has read one record of each partition of "t", which hold 5 and 3."""
    await cli("groups", "reset-offsets", "g", "--to-offset", "1", "-t", "t", "--execute")


def at(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [5, 3]),
        (["--to-current"], [1, 1]),
        (["--to-offset", "2"], [2, 2]),
        (["--to-offset", "4"], [4, 3]),
        (["--shift-by", "1"], [2, 2]),
        (["--shift-by", "-9"], [0, 0]),
        (["--to-datetime", at(4_000)], [3, 0]),
        (["--to-datetime", at(8_000)], [5, 2]),
        (["--by-duration", "PT1H"], [5, 3]),
        (["--by-duration", "100000d"], [0, 0]),
    ],
)
async def test_every_target_of_reset_offsets(cli: Cli, target: list[str], offsets: list[int]) -> None:
    planned = (await cli("groups", "reset-offsets", "g", *target, "--json")).json
    assert [row["new_offset"] for row in planned["offsets"]] == offsets
    assert [row["old_offset"] for row in planned["offsets"]] == [1, 1]
    assert not planned["executed"]
    (before,) = (await cli("groups", "describe", "g", "--json")).json
    assert [row["current_offset"] for row in before["offsets"]] == [1, 1]
    await cli("groups", "reset-offsets", "g", *target, "--execute")
    (after,) = (await cli("groups", "describe", "g", "--json")).json
    assert [row["current_offset"] for row in after["offsets"]] == offsets


async def test_the_plan_is_printed_as_kafka_prints_it(cli: Cli) -> None:
    printed = await cli("groups", "reset-offsets", "g", "--to-offset", "4", "-t", "t")
    assert printed.out == (
        "\n"
        "GROUP           TOPIC           PARTITION  NEW-OFFSET\n"
        "g               t               0          4\n"
        "g               t               1          3\n"
    )
    assert printed.err == (
        "barnabas: warning: t-1 has offsets 0 to 3: 4 becomes 3\n"
        "Dry run, nothing was changed. To do: add --execute to set these offsets.\n"
    )
    assert (await cli("groups", "reset-offsets", "g", "--to-latest", "--execute")).err == ""


async def test_only_some_partitions(cli: Cli) -> None:
    printed = await cli("groups", "reset-offsets", "g", "--to-latest", "-t", "t:1", "--export")
    assert printed.out == "t,1,3\n"
    assert (await cli("groups", "reset-offsets", "g", "--to-latest", "-t", "t:1,0", "--export")).lines == [
        "t,0,5",
        "t,1,3",
    ]
    assert "UNKNOWN_TOPIC" in (await cli("groups", "reset-offsets", "g", "--to-latest", "-t", "u", status=1)).err
    assert (
        "is not a topic with partitions"
        in (await cli("groups", "reset-offsets", "g", "--to-latest", "-t", "t:x", status=2)).err
    )


async def test_offsets_from_a_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text("t,0,3\n\n t , 1 , 99 \n")
    printed = await cli("groups", "reset-offsets", "g", "--from-file", str(file), "--execute", "--export")
    assert printed.lines == ["t,0,3", "t,1,3"]
    assert (
        await cli("groups", "reset-offsets", "g", "--from-file", str(file), "-t", "t:0", "--export")
    ).out == "t,0,3\n"
    piped = await cli("groups", "reset-offsets", "g", "--from-file", "-", "--export", stdin=file)
    assert piped.lines == ["t,0,3", "t,1,3"]
    file.write_text("t,0,3\nt,zero,1\n")
    failed = await cli("groups", "reset-offsets", "g", "--from-file", str(file), status=1)
    assert failed.err == f"barnabas: {file}, line 2: 't,zero,1' is not topic,partition,offset\n"
    file.write_text("")
    assert "has no lines" in (await cli("groups", "reset-offsets", "g", "--from-file", str(file), status=1)).err
    assert "No such file" in (await cli("groups", "reset-offsets", "g", "--from-file", "/none", status=1)).err


async def test_a_group_with_members_is_not_reset(cli: Cli) -> None:
    async with Consumer("t", bootstrap_servers=cli.address, group_id="g"):
        refused = await cli("groups", "reset-offsets", "g", "--to-earliest", "--execute", status=1)
    assert refused.err == (
        "barnabas: offsets can only be reset while group 'g' is inactive, but it is Stable with 1 member. "
        "To do: stop the members first\n"
    )


async def test_a_missing_offset_cannot_be_shifted(cli: Cli) -> None:
    nothing = await cli("groups", "reset-offsets", "new", "--to-latest", status=1)
    assert "group 'new' has no offsets to reset" in nothing.err
    nothing = await cli("groups", "reset-offsets", "new", "--shift-by", "1", "-t", "t:0", status=1)
    assert "has no offset to shift for t-0" in nothing.err
    assert "required" in (await cli("groups", "reset-offsets", "g", status=2)).err
