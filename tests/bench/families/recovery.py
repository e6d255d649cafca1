"""Time from the start after a kill -9 until the last record acknowledged before it can be consumed."""

import time
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.bench.results import Chart, Table, seconds
from tests.bench.targets import Target, load
from tests.bench.wire import Link, create_topic, ends
from tests.interop.server import Server, answers

TITLE: Final = "Recovery"
ABOUT: Final = (
    "kill -9, then a restart: the time from the start of the process until a consumer can fetch the last "
    "acknowledged record of each of six partitions, tried every 5 ms. Measured with 600 records of 1 KB, and with "
    "5 GB of them (batches of up to 1 MB) that no flush was requested for and that are in the page cache. Apache "
    "Kafka's controller considers the killed broker alive for broker.session.timeout.ms, 9 s, and rejects the new "
    "one until then."
)
ROUNDS: Final = 2
TOPIC: Final = "recovered"
PARTITIONS: Final = 6
SIZE: Final = 1000
#: Records of one GB: the client's buffer cannot hold all records at once.
STEP: Final = 1_000_000
STEPS: Final = 5
FEW: Final = 600
LITTLE, MUCH = "start after kill -9, 600 records", "start after kill -9, 5 GB"
CHARTS: Final = [Chart("start after kill -9", {"600 records": LITTLE, "5 GB": MUCH}, "s", less_is_better=True)]


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    for _ in range(rounds):
        for target in targets:
            if target.server is None:
                continue
            ready = _There()
            with target.server(ready=ready, pause=0.005) as server:
                address = server.bootstrap_servers
                create_topic(address, TOPIC, PARTITIONS)
                load("produce", address, TOPIC, FEW, SIZE, PARTITIONS)
                table.add(LITTLE, target.name, _recovered(server, ready), seconds)
                for _ in range(1 if quick else STEPS):
                    load("produce", address, TOPIC, STEP // 10 if quick else STEP, SIZE, PARTITIONS)
                table.add(MUCH, target.name, _recovered(server, ready), seconds)
    return table


class _There:
    """Ready when the last record of each partition with records can be fetched."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}

    def __call__(self, port: int) -> bool:
        return _fetched(port, self.ends) if self.ends else answers(port)


def _recovered(server: Server, ready: _There) -> float:
    with Link(server.bootstrap_servers) as link:
        ready.ends = {number: end for number, end in enumerate(ends(link, TOPIC, PARTITIONS)) if end}
    server.kill()
    server.start()
    return time.perf_counter() - server.started_at


def _fetched(port: int, ends: Mapping[int, int]) -> bool:
    partitions = [
        FetchPartition(partition=number, fetch_offset=end - 1, partition_max_bytes=1_000_000)
        for number, end in ends.items()
    ]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=100_000_000, topics=[FetchTopic(topic=TOPIC, partitions=partitions)]
    )
    try:
        with Link(f"127.0.0.1:{port}") as link:
            answer = link.ask(request, 11, FetchResponse)
    except (OSError, EOFError):
        return False
    whole = [one.partition_index for each in answer.responses for one in each.partitions if one.records]
    return len(whole) == len(ends)
