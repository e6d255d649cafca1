"""Tables are Delta tables: another implementation of the format, delta-rs, reads and checkpoints them."""

import json
import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from barnabas_pipeline.lake import LOG, log, snapshot
from tests.pipeline.lake.plain import PlainTable, add, filled, numbers_in, table_at


def numbers(path: Path) -> list[int]:
    """The rows of a table, read by delta-rs; with a query engine of its own, which does not read our log."""
    return sorted(DeltaTable(str(path)).to_pyarrow_table()["n"].to_pylist())


def test_delta_rs_reads_every_version_with_and_without_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "EVERY", 5)
    table = filled(tmp_path, 0)
    for version in range(1, 13):
        add(table)
        if version % 4 == 0:
            assert table.compact(1 << 20, 4)
        theirs = DeltaTable(str(tmp_path))
        assert theirs.version() == table.state.version
        assert {uri.removeprefix(f"{tmp_path}/") for uri in theirs.file_uris()} == set(table.state.files)
        assert theirs.transaction_version("barnabas/0") == table.state.offsets[0]
        assert numbers(tmp_path) == list(range(3 * version))
    assert json.loads((tmp_path / LOG / "_last_checkpoint").read_text())["version"] == 15
    # From here on only the checkpoint says what the table has.
    for name in os.listdir(tmp_path / LOG):
        entry = log.version_of(name)
        if entry is not None and entry < 15:
            (tmp_path / LOG / name).unlink()
    assert numbers(tmp_path) == list(range(36))
    assert snapshot(tmp_path) == table.state


def test_a_checkpoint_of_delta_rs_is_read(tmp_path: Path) -> None:
    table = filled(tmp_path, 4)
    DeltaTable(str(tmp_path)).create_checkpoint()
    for version in range(table.state.version + 1):
        (tmp_path / LOG / log.name_of(version)).unlink()
    found = table_at(tmp_path)
    assert found.sweep() == 0
    assert (found.state.files, found.state.offsets, found.state.rows) == (table.state.files, {0: 12}, 12)
    add(found)
    assert numbers(tmp_path) == list(range(15))


def test_files_that_delta_rs_merged_are_kept(tmp_path: Path) -> None:
    table: PlainTable = filled(tmp_path, 4)
    DeltaTable(str(tmp_path)).optimize.compact()
    found = table_at(tmp_path)
    assert found.state.version == table.state.version + 1
    assert found.sweep() == 4
    add(found)
    assert numbers(tmp_path) == list(range(15))
    assert sorted(one for path in found.state.files for one in numbers_in(str(tmp_path), path)) == list(range(15))
