"""Small requests per second over one connection, with one core for the server and one for the load."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from tests.bench.loads.requests import KINDS
from tests.bench.machine import cores, pinned
from tests.bench.results import Chart, Table, count
from tests.bench.targets import Target, load

TITLE: Final = "Small requests"
ABOUT: Final = (
    "Requests/s over one connection with 1 or 16 requests in flight. The server is pinned to one core, the load "
    "(uvloop) to the other. The load sends one prepared frame again and again and compares every response with "
    "the first one. Produce responses differ in their offset, so their length is compared and the last one is "
    "decoded. A Produce request has one record of 100 B, with acks=all."
)
ROUNDS: Final = 3
SECONDS: Final = 1.5
DEPTHS: Final = (1, 16)


def _row(kind: str, depth: int) -> str:
    return f"{kind}, depth {depth}"


CHARTS: Final = [
    Chart(
        f"{depth} under way",
        {kind.replace(" ", "\n", 1).partition(",")[0]: _row(kind, depth) for kind in KINDS},
        "thousand/s",
        1e-3,
    )
    for depth in DEPTHS
]


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    mine, other = cores()
    with ExitStack() as stack:
        with pinned(mine):
            addresses = {target: stack.enter_context(target.run()) for target in targets}
        for _ in range(rounds):
            for kind in KINDS:
                for target, address in addresses.items():
                    with pinned(other):
                        rates = load("requests", address, kind, SECONDS / 5 if quick else SECONDS, *DEPTHS)
                    for depth, rate in rates.items():
                        table.add(_row(kind, int(depth)), target.name, rate, count)
    return table
