"""Time from the start of the process to the first acknowledged Produce."""

import time
from collections.abc import Sequence
from typing import Final

from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.bench.results import Chart, Table, seconds
from tests.bench.targets import Target
from tests.bench.wire import Link, produce_one

TITLE: Final = "Start"
ABOUT: Final = (
    "The time from the start of the process, with an empty data folder, to the first record acknowledged with "
    "acks=all in a topic that this record creates, tried every millisecond."
)
ROUNDS: Final = 5
ROW: Final = "first acknowledged produce"
CHARTS: Final = [Chart("from start to the first acknowledged record", {"": ROW}, "s", less_is_better=True)]


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    for _ in range(rounds):
        for target in targets:
            if target.server is not None:
                with target.server(ready=_produced, pause=0.001) as server:
                    elapsed = time.perf_counter() - server.started_at
                table.add(ROW, target.name, elapsed, seconds)
    return table


def _produced(port: int) -> bool:
    try:
        with Link(f"127.0.0.1:{port}") as link:
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="first")])
            (topic,) = link.ask(asked, 4, MetadataResponse).topics
            if topic.error_code:
                return False
            return produce_one(link, "first") == 0
    except (OSError, EOFError):
        return False
