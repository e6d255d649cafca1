"""The group coordinator: rebalances, heartbeats of many groups, commits, and what it does when it starts."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from barnabas_protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tests.bench.loads.groups import FILLED, OFFSET
from tests.bench.machine import cores, pinned
from tests.bench.results import Table, count, seconds
from tests.bench.targets import LIMIT, Target, load
from tests.bench.wire import PASSING, Link, create_topic
from tests.interop.server import Server, answers

TITLE: Final = "Groups"
ABOUT: Final = (
    "The server on one core, the load (uvloop) on the other. Rebalance: a connection for each member; from the first"
    " JoinGroup sent to the last SyncGroup answered, less the initial delay of 3 s, in which the members get their ids"
    " and join; and from LeaveGroup sent, after which all others heartbeat at once, join and sync. Heartbeats: as fast"
    " as they go with 64 under way over 4 connections, for one group and for 10,000 groups of one member in turn; and"
    " at the pace of 10,000 members that heartbeat every 3 s, from when each was due. Commits: one partition each,"
    " 1,000 under way over 100 connections, a group for each. Replay: 1,000,000 records of 10 groups, written with"
    " commits of 1,000 partitions, then kill -9; from the start of the process, and from its first answer to Metadata,"
    " until all groups' OffsetFetch is answered with the offsets; records/s are of the time by which this start takes"
    " longer than one before the records were written."
)
ROUNDS: Final = 2
DELAY: Final = 3
SIZES: Final = (10, 100, 1000)
GROUPS: Final = 10_000
PARTITIONS: Final = 1000
RECORDS: Final = 1_000_000
TOPIC: Final = "filled"


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
            _rebalances(table, target)
            _requests(table, target, 1.0 if quick else 3.0)
            _replay(table, target, RECORDS // 10 if quick else RECORDS)
    return table


class _Replayed:
    """Ready when the offsets are there again; notes when the server first answered anything."""

    def __init__(self) -> None:
        self.wanted = False
        self.first = 0.0

    def __call__(self, port: int) -> bool:
        if not self.first:
            if not answers(port):
                return False
            self.first = time.perf_counter()
        return not self.wanted or _offsets(port)


def _offsets(port: int) -> bool:
    """Whether every group's offsets of every partition are answered; an error that does not pass, or a loss, raises."""
    try:
        with Link(f"127.0.0.1:{port}") as link:
            # A cheap question first: a coordinator that is loading must not be kept busy by the one who waits for it.
            for partitions in (1, PARTITIONS):
                for group in FILLED:
                    topic = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[*range(partitions)])
                    asked = OffsetFetchRequest(group_id=group, topics=[topic])
                    answer = link.ask(asked, 5, OffsetFetchResponse)
                    if answer.error_code in PASSING:
                        return False
                    found = [one.committed_offset for each in answer.topics for one in each.partitions]
                    if answer.error_code or found != [OFFSET] * partitions:
                        raise RuntimeError(f"{group}: error {answer.error_code}, offsets {set(found)}")
    except (OSError, EOFError):
        return False
    return True


def _load(server: Server, what: str, *args: str | int | float) -> dict[str, Any]:
    with pinned(cores()[1]):
        return load("groups", what, server.bootstrap_servers, server.pid, *args)


@contextmanager
def _running(target: Target, overrides: Mapping[str, str | int], ready: Callable[[int], bool]) -> Iterator[Server]:
    assert target.server is not None
    with ExitStack() as stack:
        with pinned(cores()[0]):
            server = stack.enter_context(target.server(overrides, ready=ready, start_timeout=LIMIT / 5, pause=0.005))
        yield server


def _rebalances(table: Table, target: Target) -> None:
    with _running(target, {"group.initial.rebalance.delay.ms": DELAY * 1000}, answers) as server:
        for size in SIZES:
            done = _load(server, "rebalance", size, DELAY)
            table.add(f"{size:,} members join, beyond the delay", target.name, done["join"], milliseconds)
            table.add(f"{size:,} members join, processor time", target.name, done["join cpu"], milliseconds)
            table.add(f"one of {size:,} leaves", target.name, done["leave"], milliseconds)


def _requests(table: Table, target: Target, length: float) -> None:
    with _running(target, {}, answers) as server:
        # The many groups come last: commits are measured on a coordinator that has only theirs.
        create_topic(server.bootstrap_servers, TOPIC, 1)
        done = _load(server, "commits", TOPIC, length)
        table.add("commits/s, 1,000 under way", target.name, done["rate"], count)
        found = _load(server, "heartbeats", GROUPS, length)
        one, many, paced = found["one"], found["many"], found["paced"]
        name = f"{GROUPS:,} groups"
        table.add("heartbeats/s, 1 group", target.name, one["rate"], count)
        table.add(f"heartbeats/s, {name}", target.name, many["rate"], count)
        table.add("processor time of a heartbeat, 1 group", target.name, one["cpu"], microseconds)
        table.add(f"processor time of a heartbeat, {name}", target.name, many["cpu"], microseconds)
        table.add(f"processor time of a heartbeat, {name} / 1 group", target.name, many["cpu"] / one["cpu"], ratio)
        pace = f"{name} heartbeating every 3 s"
        table.add(f"{pace}, share of a core", target.name, paced["share"], percent)
        table.add(f"{pace}, p99", target.name, paced["p99"], milliseconds)


def _replay(table: Table, target: Target, records: int) -> None:
    ready = _Replayed()
    with _running(target, {"log.cleaner.enable": "false"}, ready) as server:
        create_topic(server.bootstrap_servers, TOPIC, PARTITIONS)
        _load(server, "fill", TOPIC, PARTITIONS, len(FILLED))
        ready.wanted = True
        bare, _ = _restarted(server, ready)
        done = _load(server, "fill", TOPIC, PARTITIONS, records // PARTITIONS)
        if done["records"] != records:
            raise RuntimeError(f"{done['records']} of {records} offset records are written")
        table.add("offset records/s written, 1,000 a request", target.name, records / done["seconds"], count)
        whole, served = _restarted(server, ready)
        table.add("start without offset records", target.name, bare, seconds)
        table.add(f"start with {records:,} offset records", target.name, whole, seconds)
        table.add(f"replay of {records:,} records, from the first answer", target.name, served, seconds)
        table.add("offset records/s replayed", target.name, records / max(whole - bare, 0.001), count)


def _restarted(server: Server, ready: _Replayed) -> tuple[float, float]:
    """A crash and a start; seconds until the offsets are there, since the start and since the first answer."""
    server.kill()
    ready.first = 0.0
    with pinned(cores()[0]):
        server.start()
    now = time.perf_counter()
    return now - server.started_at, now - ready.first
