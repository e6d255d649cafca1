"""Opening a table of the archive, after a day and after a month of continuous work."""

from collections.abc import Sequence
from typing import Final

from tests.bench.results import Table, mebibytes, seconds
from tests.bench.targets import Target, load

TITLE: Final = "A table of the archive"
ABOUT: Final = (
    "The time until `barnabas-pipeline` knows the files and the offsets of a table on a local disk, in a new process, "
    "after its imports; files are in the page cache. The table is that of an archive that has committed every ten "
    "seconds, and merged when eight small files of a day existed. Without checkpoints all entries of the log are read, "
    "as in tables of earlier versions. Memory is what opening adds to the peak of the process."
)
ROUNDS: Final = 3
NAME: Final = "barnabas-pipeline"


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([NAME])
    for _ in range(rounds):
        for row, days, checkpoints in (
            ("a day, without checkpoints", 1, 0),
            ("a day", 1, 1),
            ("30 days", 3 if quick else 30, 1),
        ):
            done = load("lake", days, checkpoints)
            table.add(row, NAME, done["seconds"], seconds)
            table.add(f"memory, {row}", NAME, done["memory"], mebibytes)
    return table
