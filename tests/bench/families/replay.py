"""Start of the group coordinator: the time to load committed offsets."""

import time
from collections.abc import Sequence
from typing import Final

from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from tests.bench.families.groups import coordinated_load, running
from tests.bench.loads.groups import FILLED, OFFSET
from tests.bench.machine import cores, pinned
from tests.bench.results import Table, count, seconds
from tests.bench.targets import Target
from tests.bench.wire import PASSING, Link, create_topic
from tests.interop.server import Server, answers

TITLE: Final = "Offsets after a crash"
ABOUT: Final = (
    "1,000,000 offsets of 10 groups are written with commits of 1,000 partitions, then the broker is killed with "
    "kill -9. Time from the start of the process, and from its first Metadata response, until OffsetFetch returns "
    "the offsets of all groups. Records/s count the time by which this start takes longer than a start before the "
    "offsets were written. The server has one core, the load (uvloop) the other."
)
ROUNDS: Final = 2
PARTITIONS: Final = 1000
RECORDS: Final = 1_000_000
TOPIC: Final = "filled"


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    for _ in range(rounds):
        for target in targets:
            if target.server is not None:
                _replay(table, target, RECORDS // 10 if quick else RECORDS)
    return table


class _Replayed:
    """Ready when all offsets are loaded; records when the server first answered."""

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
    """Return whether all offsets of all groups are loaded. Raises on a lost offset or a fatal error."""
    try:
        with Link(f"127.0.0.1:{port}") as link:
            # A cheap request first: polling must not slow down a coordinator that is loading.
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


def _replay(table: Table, target: Target, records: int) -> None:
    ready = _Replayed()
    with running(target, {"log.cleaner.enable": "false"}, ready) as server:
        create_topic(server.bootstrap_servers, TOPIC, PARTITIONS)
        coordinated_load(server, "fill", TOPIC, PARTITIONS, len(FILLED))
        ready.wanted = True
        bare, _ = _restarted(server, ready)
        done = coordinated_load(server, "fill", TOPIC, PARTITIONS, records // PARTITIONS)
        if done["records"] != records:
            raise RuntimeError(f"{done['records']} of {records} offset records are written")
        table.add("offset records/s written, 1,000 a request", target.name, records / done["seconds"], count)
        whole, served = _restarted(server, ready)
        table.add("start without offset records", target.name, bare, seconds)
        table.add(f"start with {records:,} offset records", target.name, whole, seconds)
        table.add(f"replay of {records:,} records, from the first answer", target.name, served, seconds)
        if whole > bare:
            table.add("offset records/s replayed", target.name, records / (whole - bare), count)


def _restarted(server: Server, ready: _Replayed) -> tuple[float, float]:
    """Kill and start the server; return seconds to load all offsets, from the start and from the first response."""
    server.kill()
    ready.first = 0.0
    with pinned(cores()[0]):
        server.start()
    now = time.perf_counter()
    return now - server.started_at, now - ready.first
