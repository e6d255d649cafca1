"""Groups of the consumer protocol (KIP-848): how fast they converge, and what their heartbeats cost."""

from collections.abc import Sequence
from typing import Any, Final

from tests.bench.families.groups import microseconds, milliseconds, percent, running
from tests.bench.loads.consumer_groups import DEATHS, LEAVES
from tests.bench.machine import cores, pinned
from tests.bench.results import Chart, Table, count
from tests.bench.targets import LIMIT, Target, load
from tests.bench.wire import create_topic
from tests.interop.server import Server, answers

TITLE: Final = "Groups of the consumer protocol"
PARTITIONS: Final = 1_000
SIZES: Final = (10, 100, 1_000, 5_000)
#: Seconds without a heartbeat after which a member is dead.
SESSION: Final = 10
#: Groups and members of each that heartbeat at a fixed rate.
STEADY: Final = (10, 1_000)
ABOUT: Final = (
    f"One topic of {PARTITIONS:,} partitions. The server has one core, the load (uvloop) the other: members that "
    "speak the raw protocol, each with its own connection, and that revoke at once. They heartbeat every second, "
    "and at once when what they own has changed. A group has converged when each partition has an owner, and no "
    "member has two more than another one: after all members have joined a server at rest at once, after a member "
    f"with the most partitions has left, and after one has died, less the session timeout of {SESSION} s. After a "
    f"leave or a death, that is when the last member that gains a partition has heartbeated. {LEAVES} members (8 of "
    f"10) leave one after the other, and, when as many have joined again, {DEATHS} die, at times that have nothing "
    "to do with the heartbeats of the others, and the medians count. The processor time of a leave lasts until "
    "every member has its epoch. Targets are at least a second apart on both brokers "
    "(`group.consumer.assignment.interval.ms`). Heartbeats at full speed: 64 in flight over 4 connections, of all "
    "members of the group in turn. At a fixed rate: 10 groups of 1,000 members that heartbeat every 5 s; the "
    "latency counts from when each is due. With thousands of members the load takes as much processor time as the "
    "server, or more: the times of these rows are those of both."
)
ROUNDS: Final = 1
SETTINGS: Final = {
    "group.consumer.min.heartbeat.interval.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.session.timeout.ms": SESSION * 1000,
    "group.consumer.session.timeout.ms": SESSION * 1000,
}
TOPIC: Final = "shared"
JOIN, LEAVE, DEATH = "{:,} members join", "one of {:,} leaves", "one of {:,} dies, beyond the session timeout"
RATE: Final = "heartbeats/s, {:,} members"
CHARTS: Final = [
    Chart("members join", {f"{n:,}": JOIN.format(n) for n in SIZES}, "ms until converged", 1e3, True),
    Chart("one of so many leaves", {f"{n:,}": LEAVE.format(n) for n in SIZES}, "ms until converged", 1e3, True),
    Chart("heartbeats of a group", {f"{n:,}": RATE.format(n) for n in SIZES}, "thousand/s", 1e-3),
]


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    served = [target for target in targets if target.server is not None]
    for _ in range(rounds):
        # In turn for each size, so that both have the same conditions.
        for size in SIZES[1:2] if quick else SIZES:
            for target in served:
                _converge(table, target, size)
        for target in served:
            _steady(table, target, 2.0 if quick else 10.0)
    return table


def _load(server: Server, what: str, *args: str | int | float) -> dict[str, Any]:
    with pinned(cores()[1]):
        return load("consumer_groups", what, server.bootstrap_servers, server.pid, TOPIC, PARTITIONS, *args)


def _converge(table: Table, target: Target, size: int) -> None:
    # A server of its own for each size: the members of the last one are still in their sessions.
    with running(target, SETTINGS, answers) as server:
        create_topic(server.bootstrap_servers, TOPIC, PARTITIONS, LIMIT / 5)
        done = _load(server, "converge", size, SESSION)
    table.add(JOIN.format(size), target.name, done["join"], milliseconds)
    table.add(f"{JOIN.format(size)}, processor time", target.name, done["join cpu"], milliseconds)
    table.add(LEAVE.format(size), target.name, done["leave"], milliseconds)
    table.add(f"{LEAVE.format(size)}, processor time", target.name, done["leave cpu"], milliseconds)
    table.add(DEATH.format(size), target.name, done["death"], milliseconds)
    table.add(RATE.format(size), target.name, done["rate"], count)
    table.add(f"processor time of a heartbeat, {size:,} members", target.name, done["cpu"], microseconds)


def _steady(table: Table, target: Target, seconds: float) -> None:
    groups, members = STEADY
    # The defaults: all groups form at the same time, with heartbeats every 5 s.
    with running(target, {}, answers) as server:
        create_topic(server.bootstrap_servers, TOPIC, PARTITIONS, LIMIT / 5)
        done = _load(server, "steady", members, groups, seconds)
    pace = f"{groups * members:,} members heartbeating every 5 s"
    table.add(f"{pace}, share of a core", target.name, done["share"], percent)
    table.add(f"{pace}, p99", target.name, done["p99"], milliseconds)
