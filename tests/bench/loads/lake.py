"""Writes the log of a table that an archive has worked on for DAYS, and opens it; prints seconds and bytes.

python -m tests.bench.loads.lake DAYS CHECKPOINTS

CHECKPOINTS is 1 for a table with checkpoints, and 0 for one without, which has all of its entries.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from barnabas_pipeline.lake import LOG, checkpoint, log
from barnabas_pipeline.lake.log import DataFile, Snapshot
from barnabas_pipeline.lake.opening import snapshot

SIZE: Final = 100_000
TARGET: Final = 128 * 1024 * 1024
COMMITS_A_DAY: Final = 8_640
PARTITIONS: Final = 6
SCHEMA: Final = '{"type":"struct","fields":[]}'


class Writer:
    """Writes a log as an archive does, but flushes nothing."""

    def __init__(self, table: Path, *, checkpoints: bool) -> None:
        self._log, self._checkpoints = table / LOG, checkpoints
        self._log.mkdir(parents=True)
        self._state = Snapshot()
        self._commit([log.protocol(), log.metadata(SCHEMA, {}, 0)])

    def archive(self, commits: int) -> None:
        for number in range(commits):
            date = f"2026-{1 + number // COMMITS_A_DAY // 28:02}-{1 + number // COMMITS_A_DAY % 28:02}"
            name = f"date={date}/{self._state.version + 1:08d}-0123abcd-00000.parquet"
            added = log.added(DataFile(name, date, SIZE, number), new_rows=True)
            offsets = dict.fromkeys(range(PARTITIONS), number * 1000)
            self._commit([added, *log.advanced(offsets, number), log.counted(number, number)])
            if number % log.EVERY == 0:
                self._merge()

    def _merge(self) -> None:
        for date, small in log.too_small(self._state.files.values(), TARGET, 8).items():
            name = f"date={date}/{self._state.version + 1:08d}-0123abcd-00000.parquet"
            merged = DataFile(name, date, sum(file.size for file in small), 0)
            self._commit([*(log.removed(file, 0) for file in small), log.added(merged, new_rows=False)])

    def _commit(self, actions: list[log.Action]) -> None:
        version, state = self._state.version + 1, self._state
        text = log.entry(actions, "WRITE", version)
        (self._log / log.name_of(version)).write_text(text)
        state.apply(version, text)
        if self._checkpoints and version % log.EVERY == 0:
            (self._log / log.checkpoint_name(version)).write_bytes(checkpoint.written(state))
            old = [log.name_of(version - log.KEPT - one) for one in range(log.EVERY)]
            for name in [*old, log.checkpoint_name(version - 2 * log.EVERY)]:
                (self._log / name).unlink(missing_ok=True)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    if sys.argv[1] != "open":
        days, checkpoints = int(sys.argv[1]), sys.argv[2] == "1"
        with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as folder:
            Writer(Path(folder, "t"), checkpoints=checkpoints).archive(days * COMMITS_A_DAY)
            subprocess.run([sys.executable, "-m", __spec__.name, "open", f"{folder}/t"], check=True)
        return
    before, began = peak(), time.perf_counter()
    snapshot(sys.argv[2])
    print(json.dumps({"seconds": time.perf_counter() - began, "memory": peak() - before}))


if __name__ == "__main__":
    main()
