"""One member of a consumer group as a program, so that a test can kill it with SIGKILL.

    python -m tests.interop.member '{"client": "aiokafka", "bootstrap_servers": "127.0.0.1:9092", ...}'

It polls, reports the records, commits, and reports the commit: one JSON line each on standard output, in that order.
The test therefore knows each record that may have been committed, and that each reported commit has happened. The
program leaves the group and ends when its standard input ends.
"""

import json
import sys
import threading
from typing import Any

from tests.interop.clients.base import Partition, Record, Refused
from tests.interop.clients.registry import client_class


def _say(event: str, **what: object) -> None:
    # One write for each line: a kill cuts off at most the end of the last line.
    sys.stdout.write(json.dumps({"event": event, **what}) + "\n")
    sys.stdout.flush()


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def _plain(record: Record) -> list[Any]:
    headers = [[name, _text(value)] for name, value in record.headers]
    return [
        record.partition.number,
        record.offset,
        record.timestamp,
        _text(record.key),
        _text(record.value),
        headers,
    ]


def main(settings: dict[str, Any]) -> None:
    told_to_leave = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        told_to_leave.set()

    threading.Thread(target=listen, daemon=True).start()
    client = client_class(settings["client"])(settings["bootstrap_servers"])
    reader = client.reader(
        settings["group"],
        client_id=settings["name"],
        assignor=settings["assignor"],
        session_timeout_ms=settings["session_timeout_ms"],
    )
    reader.subscribe(settings["topic"])
    assigned: frozenset[Partition] = frozenset()
    while not told_to_leave.is_set():
        try:
            records = reader.poll(reader.PATIENCE)
        except Refused as error:  # some libraries raise while the broker is down, and continue with the next poll
            _say("not polled", why=str(error))
            told_to_leave.wait(0.1)
            continue
        if reader.assignment() != assigned:
            assigned = reader.assignment()
            _say("assigned", partitions=sorted(partition.number for partition in assigned))
        if not records:
            continue
        _say("got", records=[_plain(record) for record in records])
        ends: dict[Partition, int] = {}
        for record in records:
            ends[record.partition] = max(ends.get(record.partition, 0), record.offset + 1)
        try:
            reader.commit(ends)
        except (Refused, TimeoutError) as error:
            # The group is in a later generation, or its broker is down: the next owner reads these records again.
            _say("not committed", why=str(error))
        else:
            _say("committed", offsets={partition.number: end for partition, end in ends.items()})
    client.close()
    _say("left")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
