"""Small requests per second over one connection, server and load on a core each."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from tests.bench.loads.requests import KINDS
from tests.bench.machine import cores, pinned
from tests.bench.results import Table, count
from tests.bench.targets import Target, load

TITLE: Final = "Small requests"
ABOUT: Final = (
    "Requests/s over one connection with 1 or 16 of them always under way; the server is pinned to one core, the load"
    " (uvloop, one prepared frame again and again, every answer compared) to the other one."
)
ROUNDS: Final = 5
DEPTHS: Final = (1, 16)


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
                        rates = load("requests", address, kind, 0.3 if quick else 2.0, *DEPTHS)
                    for depth, rate in rates.items():
                        table.add(f"{kind}, depth {depth}", target.name, rate, count)
    return table
