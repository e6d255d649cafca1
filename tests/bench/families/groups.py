"""The group coordinator: rebalances, heartbeats of many groups, and commits."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from tests.bench.machine import cores, pinned
from tests.bench.results import Chart, Table, count
from tests.bench.targets import LIMIT, Target, load
from tests.bench.wire import create_topic
from tests.interop.server import Server, answers

TITLE: Final = "Groups"
ABOUT: Final = (
    "The server has one core, the load (uvloop) the other. Rebalance: every member has its own connection. "
    "Joining takes from the first JoinGroup request to the last SyncGroup response, less the initial rebalance "
    "delay of 3 s, in which members get their ids and join. Leaving takes from the LeaveGroup request; all other "
    "members then heartbeat at once, rejoin and sync. Heartbeats at full speed: 64 in flight over 4 connections, "
    "for one group, then for 10,000 groups of one member in turn. Heartbeats at a fixed rate: 10,000 members that "
    "heartbeat every 3 s; the latency counts from when each is due. Commits: one partition per commit, 1,000 in "
    "flight over 100 connections, one group each. Measurements at full speed follow a warm-up of the same length."
)
ROUNDS: Final = 3
DELAY: Final = 3
SIZES: Final = (10, 100, 1000)
GROUPS: Final = 10_000
TOPIC: Final = "filled"
JOIN, LEAVE = "{:,} members join, beyond the delay", "one of {:,} leaves"
COMMITS, ONE, MANY = "commits/s, 1,000 under way", "heartbeats/s, 1 group", f"heartbeats/s, {GROUPS:,} groups"
CHARTS: Final = [
    Chart("members join", {f"{n:,}": JOIN.format(n) for n in SIZES}, "ms beyond the delay", 1e3, True),
    Chart("one of so many leaves", {f"{n:,}": LEAVE.format(n) for n in SIZES}, "ms", 1e3, True),
    Chart(
        "requests",
        {"commits": COMMITS, "heartbeats,\n1 group": ONE, f"heartbeats,\n{GROUPS:,} groups": MANY},
        "thousand/s",
        1e-3,
    ),
]


def milliseconds(value: float) -> str:
    return f"{value * 1e3:,.1f} ms"


def microseconds(value: float) -> str:
    return f"{value * 1e6:,.1f} µs"


def percent(value: float) -> str:
    return f"{value:.0%}"


def ratio(value: float) -> str:
    return f"{value:.2f}"


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    for _ in range(rounds):
        for target in targets:
            if target.server is None:
                continue
            _rebalances(table, target, SIZES[1:2] if quick else SIZES)
            _requests(table, target, 0.5 if quick else 1.5)
    return table


def coordinated_load(server: Server, what: str, *args: str | int | float) -> dict[str, Any]:
    with pinned(cores()[1]):
        return load("groups", what, server.bootstrap_servers, server.pid, *args)


@contextmanager
def running(target: Target, overrides: Mapping[str, str | int], ready: Callable[[int], bool]) -> Iterator[Server]:
    assert target.server is not None
    with ExitStack() as stack:
        with pinned(cores()[0]):
            server = stack.enter_context(target.server(overrides, ready=ready, start_timeout=LIMIT / 5, pause=0.005))
        yield server


def _rebalances(table: Table, target: Target, sizes: Sequence[int]) -> None:
    with running(target, {"group.initial.rebalance.delay.ms": DELAY * 1000}, answers) as server:
        for size in sizes:
            done = coordinated_load(server, "rebalance", size, DELAY)
            table.add(JOIN.format(size), target.name, done["join"], milliseconds)
            table.add(f"{size:,} members join, processor time", target.name, done["join cpu"], milliseconds)
            table.add(LEAVE.format(size), target.name, done["leave"], milliseconds)


def _requests(table: Table, target: Target, length: float) -> None:
    with running(target, {}, answers) as server:
        # The many groups come last, so that commits are measured on a coordinator without them.
        create_topic(server.bootstrap_servers, TOPIC, 1)
        done = coordinated_load(server, "commits", TOPIC, length)
        table.add(COMMITS, target.name, done["rate"], count)
        found = coordinated_load(server, "heartbeats", GROUPS, length)
        one, many, paced = found["one"], found["many"], found["paced"]
        name = f"{GROUPS:,} groups"
        table.add(ONE, target.name, one["rate"], count)
        table.add(MANY, target.name, many["rate"], count)
        table.add("processor time of a heartbeat, 1 group", target.name, one["cpu"], microseconds)
        table.add(f"processor time of a heartbeat, {name}", target.name, many["cpu"], microseconds)
        table.add(f"processor time of a heartbeat, {name} / 1 group", target.name, many["cpu"] / one["cpu"], ratio)
        pace = f"{name} heartbeating every 3 s"
        table.add(f"{pace}, share of a core", target.name, paced["share"], percent)
        table.add(f"{pace}, p99", target.name, paced["p99"], milliseconds)
