"""Topics: how long it takes to create and delete many, and to start a server that has them."""

import time
from collections.abc import Iterable, Sequence
from typing import Final

from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tests.bench.loads.groups import cpu
from tests.bench.results import Chart, Table, seconds
from tests.bench.targets import Target
from tests.bench.wire import Link, ends, wait_for_topic
from tests.interop.server import Server, answers

TITLE: Final = "Many topics"
ABOUT: Final = (
    "One server. Created: from the request until each partition answers ListOffsets; one topic of 1,000 partitions, "
    "and 1,000 topics of one partition, 100 per request; once 10,000 topics, on a server of their own. Processor time: "
    "of the server, for the same. Start: from the start of the process until the partitions of the last 100 topics "
    "answer, after a stop and after kill -9."
)
ROUNDS: Final = 3
MANY: Final = 1_000
AT_ONCE: Final = 100
PARTITIONS: Final = "created: 1 topic of 1,000 partitions"
TOPICS: Final = "created: 1,000 topics"
VERY_MANY: Final = 10_000
ALL_TOPICS: Final = "created: 10,000 topics"
DELETED: Final = "deleted: 1,000 topics"
STARTED: Final = "start with 1,000 topics, after a stop"
RECOVERED: Final = "start with 1,000 topics, after kill -9"
CHARTS: Final = [
    Chart(
        "many topics",
        {"1,000 partitions": PARTITIONS, "1,000 topics": TOPICS, "deleted": DELETED, "start": STARTED},
        "s",
        less_is_better=True,
    )
]
#: Seconds that one step may take.
LIMIT: Final = 300.0


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    names = [f"topic-{number}" for number in range(MANY)]
    if not quick:
        for target in targets:
            if target.server is not None:
                with target.server() as server, _Measured(table, ALL_TOPICS, target.name, server) as link:
                    _create_all(link, [f"topic-{number}" for number in range(VERY_MANY)])
    for _ in range(rounds):
        for target in targets:
            if target.server is None:
                continue
            ready = _Ready()
            with target.server(ready=ready, pause=0.005) as server:
                with _Measured(table, PARTITIONS, target.name, server) as link:
                    _create(link, ["wide"], MANY)
                    ends(link, "wide", MANY, LIMIT)
                with _Measured(table, TOPICS, target.name, server) as link:
                    _create_all(link, names)
                ready.topics = names[-AT_ONCE:]
                server.stop()
                server.start()
                table.add(STARTED, target.name, time.perf_counter() - server.started_at, seconds)
                server.kill()
                server.start()
                table.add(RECOVERED, target.name, time.perf_counter() - server.started_at, seconds)
                with _Measured(table, DELETED, target.name, server) as link:
                    for first in range(0, MANY, AT_ONCE):
                        request = DeleteTopicsRequest(topic_names=names[first : first + AT_ONCE], timeout_ms=60_000)
                        _check(each.error_code for each in link.ask(request, 5, DeleteTopicsResponse).responses)
    return table


class _Measured:
    """Adds the seconds that the context takes, and the server's processor time in it."""

    def __init__(self, table: Table, row: str, target: str, server: Server) -> None:
        self._table, self._row, self._target, self._server = table, row, target, server

    def __enter__(self) -> Link:
        self._link = Link(self._server.bootstrap_servers)
        self._used, self._began = cpu(self._server.pid), time.perf_counter()
        return self._link

    def __exit__(self, *error: object) -> None:
        elapsed, used = time.perf_counter() - self._began, cpu(self._server.pid) - self._used
        self._link.__exit__(None, None, None)
        self._table.add(self._row, self._target, elapsed, seconds)
        self._table.add(f"{self._row}, processor time", self._target, used, seconds)


class _Ready:
    """Ready when the partitions of some topics answer; when the server does if there are none."""

    def __init__(self) -> None:
        self.topics: Sequence[str] = ()

    def __call__(self, port: int) -> bool:
        if not self.topics:
            return answers(port)
        try:
            with Link(f"127.0.0.1:{port}") as link:
                for name in self.topics:
                    ends(link, name, 1, LIMIT)
        except (OSError, EOFError, ValueError):
            return False
        return True


def _create_all(link: Link, names: Sequence[str]) -> None:
    """Create topics of one partition, and wait until the last ones answer."""
    for first in range(0, len(names), AT_ONCE):
        _create(link, names[first : first + AT_ONCE], 1)
    for name in names[-AT_ONCE:]:
        wait_for_topic(link, name, 1, LIMIT)
        ends(link, name, 1, LIMIT)


def _create(link: Link, names: Sequence[str], partitions: int) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    answer = link.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5, CreateTopicsResponse)
    _check(each.error_code for each in answer.topics)


def _check(errors: Iterable[int]) -> None:
    found = set(errors)
    if found != {0}:
        raise RuntimeError(f"the topics were not changed: errors {found}")
