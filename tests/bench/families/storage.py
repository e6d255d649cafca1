"""The log without a network: append, fsync, recovery, reads, compaction, and sends to a socket."""

import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import Any, Final

from tests.bench.results import Table, count, megabytes, seconds
from tests.bench.targets import Target, load
from tests.interop.process import owned_folder

TITLE: Final = "The log"
ABOUT: Final = (
    "The storage alone, through its Python API, in a process of its own without a network, compared in turn with "
    "plain system calls in the same folder. Append: to the page cache on both sides; os.write checks nothing. "
    "With flush.messages=1 every producer waits for the fsync of its 1 KB; the comparison is one writer that "
    "writes and syncs. Recovery: one partition with batches of 16 KB after a crash, its files in the page cache; "
    '"flushed" means that its recovery point is checkpointed. Fetch: at random offsets of a part that was read '
    "once before. Compaction: counts input bytes and includes fsync. Send to a socket: os.pread and writelines on "
    "uvloop compared with a blocking os.sendfile, 1 MB at a time from a cached file over loopback; the figure is "
    "the sender's processor time, so a ratio above 1 means more of it. Large cases are measured once."
)
ROUNDS: Final = 5
#: Environment variable: if set, recovery is also measured with 20 GB.
MORE: Final = "BARNABAS_BENCH_20GB"

MB: Final = 1_000_000
OURS_NAME, BESIDE = "Barnabas", "by hand"
#: Label, size of a batch in bytes, and MB to append.
APPENDS: Final = (("1 KB", 1_000, 64), ("16 KB", 16_000, 256), ("1 MB", 1_000_000, 256))
PRODUCERS: Final = (1, 16, 256)


def milliseconds(value: float) -> str:
    return f"{value * 1e3:.3f} ms"


def percent(value: float) -> str:
    return f"{value:.0%}"


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([OURS_NAME, BESIDE])
    _appends(table, rounds, quick)
    for producers in PRODUCERS:
        row = f"append and fsync 1 KB, {producers} producer{'s' if producers > 1 else ''}, per second"
        for _ in range(rounds):
            done = _job("durable", producers, 1)
            table.add(row, OURS_NAME, done["log"][0], count)
            table.add(row, BESIDE, done["raw"][0], count)
    _recovery(table, quick)
    for _ in range(min(rounds, 3)):
        done = _job("compact", 64 if quick else 256)
        table.add("compaction", OURS_NAME, done["log"][0], megabytes)
        table.add("compaction, left of it", OURS_NAME, done["left"][0], percent)
    done = _job("feed", 512 if quick else 2048, rounds)
    for name, row, shown in (("", "feed a socket", megabytes), (" cpu", "feed a socket, per GB", seconds)):
        for target, key in ((OURS_NAME, "log"), (BESIDE, "raw")):
            for value in done[key + name]:
                table.add(row, target, value, shown)
    return table


def _appends(table: Table, rounds: int, quick: bool) -> None:
    for label, size, full in APPENDS:
        done = _job("append", size, full // 4 if quick else full, rounds)
        for target, key in ((OURS_NAME, "log"), (BESIDE, "raw")):
            for value in done[key]:
                table.add(f"append batches of {label}", target, value, megabytes)


def _recovery(table: Table, quick: bool) -> None:
    """Measure recovery for each size, and fetches on the largest log, which is reused for them."""
    sizes = [250] if quick else [1000, 5000]
    if not quick and os.environ.get(MORE) and shutil.disk_usage(tempfile.gettempdir()).free > 30_000 * MB:
        sizes.append(20_000)
    for size in sizes:
        label = f"{size / 1000:g} GB"
        with owned_folder("barnabas-bench-") as folder:
            load("storage", "fill", str(folder), size)
            scanned = load("storage", "recover", str(folder), 1)
            flushed = load("storage", "recover", str(folder), 0)
            table.add(f"recovery of {label}, nothing flushed", OURS_NAME, scanned["seconds"][0], seconds)
            scan = scanned["bytes"][0] / scanned["seconds"][0]
            table.add(f"recovery of {label}, nothing flushed, scan", OURS_NAME, scan, megabytes)
            table.add(f"recovery of {label}, flushed", OURS_NAME, flushed["seconds"][0], milliseconds)
            if size == (250 if quick else 5000):
                done = load("storage", "fetch", str(folder), 500 if quick else 5000)
                for place, (median, slow) in done.items():
                    table.add(f"fetch 64 KB at the {place} of {label}, p50", OURS_NAME, median, milliseconds)
                    table.add(f"fetch 64 KB at the {place} of {label}, p99", OURS_NAME, slow, milliseconds)


def _job(job: str, *numbers: int) -> dict[str, Any]:
    with owned_folder("barnabas-bench-") as folder:
        return load("storage", job, str(folder), *numbers)
