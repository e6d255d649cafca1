"""`barnabas topics export`."""

import csv
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from barnabas_client import Producer
from barnabas_client.columns import SCHEMA
from tests.client.cli.conftest import Cli

pytestmark = pytest.mark.usefixtures("numbers")


def read(path: Path) -> pa.Table:
    return pyarrow.parquet.read_table(path) if path.suffix == ".parquet" else pa.ipc.open_file(path).read_all()


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
async def test_a_topic_becomes_a_table(cli: Cli, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"t.{kind}"
    done = await cli("topics", "export", "t", "-o", str(path))
    assert "t: 8 records in" in done.err
    table = read(path).sort_by([("partition", "ascending"), ("offset", "ascending")])
    assert table.schema.equals(SCHEMA)
    assert table.column("value").to_pylist() == [b"%d" % number for number in range(8)]
    assert table.column("key").to_pylist() == [b"k%d" % number for number in range(8)]
    assert table.column("timestamp").cast(pa.int64()).to_pylist() == [1_000 * (number + 1) for number in range(8)]
    assert table.column("headers").to_pylist()[3] == [{"key": "n", "value": b"3"}]
    assert {name for name in os.listdir(tmp_path) if name.startswith("t.")} == {path.name}


async def test_json_lines_are_those_of_consume(cli: Cli) -> None:
    exported = await cli("topics", "export", "t", "--format", "jsonl")
    consumed = await cli("consume", "t", "--from-beginning", "-e", "--json")
    assert sorted(exported.lines) == sorted(consumed.lines)
    assert len(exported.lines) == 8


async def test_csv_has_texts(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    printed = await cli("topics", "export", "t", "--output", str(path), "-p", "1", "--json")
    assert printed.json == {"topic": "t", "file": str(path), "format": "csv", "records": 3}
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["offset"], row["key"], row["value"]) for row in rows] == [
        ("0", "k5", "5"),
        ("1", "k6", "6"),
        ("2", "k7", "7"),
    ]
    assert json.loads(rows[0]["headers"]) == [["n", "5"]]


async def test_bytes_that_are_not_text_are_refused_in_csv(cli: Cli, tmp_path: Path) -> None:
    async with Producer(bootstrap_servers=cli.address) as producer:
        await producer.send_and_wait("t", b"\xff")
    failed = await cli("topics", "export", "t", "-o", str(tmp_path / "t.csv"), status=1)
    assert "are not UTF-8, which CSV cannot hold. To do: give --format parquet" in failed.err
    assert not [name for name in os.listdir(tmp_path) if name.startswith("t.")]


async def test_a_range_of_times(cli: Cli) -> None:
    printed = await cli(
        "topics", "export", "t", "-f", "jsonl", "--since", "1970-01-01T00:00:03Z", "--until", "1970-01-01T00:00:07Z"
    )
    assert sorted(json.loads(line)["value"] for line in printed.lines) == ["2", "3", "4", "5"]


async def test_what_cannot_be_exported_is_said(cli: Cli, tmp_path: Path) -> None:
    assert (
        "topic 't' has no partition 7: it has 2"
        in (await cli("topics", "export", "t", "-f", "csv", "-p", "7", status=2)).err
    )
    assert "give --format" in (await cli("topics", "export", "t", "-o", str(tmp_path / "t.xls"), status=2)).err
    assert "missing" in (await cli("topics", "export", "missing", "-f", "csv", status=1)).err
    assert not [name for name in os.listdir(tmp_path) if name.startswith("t.")]
