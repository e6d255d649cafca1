"""A group of member programs, and a record of what they report."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.interop import process
from tests.interop.clients.base import SESSION_TIMEOUT_MS, Assignor, Partition, Record

#: Seconds that a group may take for one step, including the session timeout of a killed member on a slow machine.
LIMIT: Final = 90.0


class Member:
    """A member program. `partitions` is the assignment that it last reported."""

    def __init__(self, name: str, running: subprocess.Popen[str]) -> None:
        self.name = name
        self.partitions: frozenset[int] = frozenset()
        self.failed: list[str] = []
        self.left = False
        self.ended = False
        self._process = running

    def leave(self) -> None:
        """Make it leave the group and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        """Kill it with SIGKILL, so that it sends no LeaveGroup."""
        process.end(self._process, 0)
        assert self._process.stdin is not None
        self._process.stdin.close()


class GroupOfPrograms:
    """Members of one group on one topic, all of one client library.

    `got` holds the records that members received. `done` holds, for each record, the members that received it and whose
    commit of it was acknowledged.
    """

    def __init__(self, client: str, bootstrap_servers: str, group: str, topic: str, assignor: Assignor) -> None:
        self.topic = topic
        self.got: dict[tuple[int, int], Record] = {}
        self.done: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        self.committed: dict[int, int] = {}
        self.first_got: dict[str, dict[int, int]] = {}
        self.members: list[Member] = []
        self._settings: dict[str, object] = {
            "client": client,
            "bootstrap_servers": bootstrap_servers,
            "group": group,
            "topic": topic,
            "assignor": assignor,
        }
        self._listeners: list[threading.Thread] = []
        self._said: queue.Queue[tuple[Member, str | None]] = queue.Queue()
        self._open: dict[Member, list[tuple[int, int]]] = {}

    def join(self, name: str, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> Member:
        settings = {**self._settings, "name": name, "session_timeout_ms": session_timeout_ms}
        running = process.spawn(
            [sys.executable, "-m", "tests.interop.member", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        member = Member(name, running)
        self.members.append(member)
        self.first_got[name] = {}

        def listen() -> None:
            assert running.stdout is not None
            with running.stdout:
                for line in running.stdout:
                    self._said.put((member, line))
            self._said.put((member, None))

        listener = threading.Thread(target=listen)
        listener.start()
        self._listeners.append(listener)
        return member

    def wait(self, what: str, until: Callable[[], bool], limit: float = LIMIT) -> None:
        """Read the members' reports until `until` returns True."""
        deadline = time.monotonic() + limit
        while not until():
            try:
                member, line = self._said.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"after {limit:.0f} s not yet: {what}\n{self._state()}") from None
            self._note(member, line)

    def wait_shared(self, *members: Member) -> None:
        """Wait until exactly these members have the six partitions, divided as evenly as possible."""

        def shared() -> bool:
            numbers = [number for member in members for number in member.partitions]
            sizes = [len(member.partitions) for member in members]
            return sorted(numbers) == list(range(6)) and max(sizes) - min(sizes) <= 1

        self.wait(f"six partitions shared by {', '.join(member.name for member in members)}", shared)

    def wait_done(self, ends: dict[int, int]) -> None:
        """Wait until all offsets before `ends` are committed."""
        self.wait(
            "everything committed",
            lambda: all(self.committed.get(number, 0) >= end for number, end in ends.items()),
        )

    def close(self) -> None:
        for member in self.members:
            member.kill()
        for listener in self._listeners:
            listener.join()

    def _note(self, member: Member, line: str | None) -> None:
        if line is None:
            member.ended, member.partitions = True, frozenset()
            self._open.pop(member, None)
            return
        try:
            said: dict[str, Any] = json.loads(line)
        except ValueError:
            return  # cut off by a kill
        if said["event"] == "assigned":
            member.partitions = frozenset(said["partitions"])
        elif said["event"] == "got":
            batch = [self._record(*plain) for plain in said["records"]]
            for record in batch:
                self.got[record.partition.number, record.offset] = record
                self.first_got[member.name].setdefault(record.partition.number, record.offset)
            self._open[member] = [(record.partition.number, record.offset) for record in batch]
        elif said["event"] == "committed":
            for at in self._open.pop(member, []):
                self.done[at].append(member.name)
            for number, end in said["offsets"].items():
                self.committed[int(number)] = max(end, self.committed.get(int(number), 0))
        elif said["event"] == "not committed":
            self._open.pop(member, None)
            member.failed.append(said["why"])
        elif said["event"] == "not polled":
            member.failed.append(said["why"])
        elif said["event"] == "left":
            member.left = True

    def _record(
        self,
        number: int,
        offset: int,
        timestamp: int,
        key: str | None,
        value: str | None,
        headers: list[list[str | None]],
    ) -> Record:
        pairs = tuple((str(name), None if text is None else text.encode()) for name, text in headers)
        return Record(
            Partition(self.topic, number),
            offset,
            timestamp,
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            pairs,
        )

    def _state(self) -> str:
        lines = [
            f"{member.name}: {'ended' if member.ended else sorted(member.partitions)} {member.failed[-3:]}"
            for member in self.members
        ]
        return "\n".join([*lines, f"committed: {sorted(self.committed.items())}"])


@contextmanager
def group_of_programs(
    client: str, bootstrap_servers: str, group: str, topic: str, assignor: Assignor = "range"
) -> Iterator[GroupOfPrograms]:
    programs = GroupOfPrograms(client, bootstrap_servers, group, topic, assignor)
    try:
        yield programs
    finally:
        programs.close()
