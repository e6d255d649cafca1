"""A group whose members are programs that can be made ill."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from barnabas.sync import Admin, Producer
from tests.interop.process import end, run, spawn

#: Seconds for what has to happen: sessions of 6 s, on a machine that is busy.
LIMIT: Final = 90
#: The session timeout of all members.
SESSION_MS: Final = 6_000


class Ward:
    """A group of one library and protocol.

    Args:
        bootstrap: of the broker.
        group: the group.
        topic: that it reads.
        library: of its members, one of :data:`tests.clinic.patient.LIBRARIES`.
        protocol: "classic" or "consumer".
        poll_ms: max.poll.interval.ms of its members.
        own_names: whether each member has a client id; otherwise the library chooses it.
        restart: restarts the broker.

    Attributes:
        bootstrap: of the broker.
        group: the group.
        topic: that it reads.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topic: str,
        library: str,
        protocol: str,
        poll_ms: int,
        own_names: bool = True,
        restart: Callable[[], None] | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self._restart = restart
        self._library = library
        self._own_names = own_names
        self._settings: dict[str, Any] = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": [topic],
            "protocol": protocol,
            "session_ms": SESSION_MS,
            "poll_ms": poll_ms,
        }
        self._patients: dict[str, subprocess.Popen[str]] = {}

    def close(self) -> None:
        """End all programs."""
        for name in list(self._patients):
            self.kill(name)

    def admit(
        self,
        name: str,
        instance_id: str | None = None,
        topics: Sequence[str] = (),
        poison: tuple[int, int] | None = None,
    ) -> None:
        """Start a member.

        Args:
            name: its client id.
            instance_id: its group.instance.id.
            topics: that it reads, the ward's if none are given. A name that begins with ^ is an expression.
            poison: partition and offset of a record at which it ends.
        """
        client_id = name if self._own_names else None
        settings = {**self._settings, "client_id": client_id, "instance_id": instance_id, "poison": poison}
        if topics:
            settings["topics"] = list(topics)
        if name in self._patients:
            self.kill(name)  # It has ended by itself.
        command = [sys.executable, "-m", "tests.clinic.patient", self._library, json.dumps(settings)]
        self._patients[name] = spawn(command, subprocess.PIPE, subprocess.PIPE, subprocess.DEVNULL)

    def settle(self, *names: str) -> None:
        """Wait until each of these members owns a partition, as the explanation says."""
        count = len(names)
        members = f"{count} member{'s' if count > 1 else ''}."
        self.wait_for(
            f"the group has {count} members",
            lambda: any(str(line).endswith(members) for one in self.explanations()[-1:] for line in one["details"]),
        )

    def restart_broker(self) -> None:
        """Restart the broker."""
        assert self._restart is not None
        self._restart()

    def produce(self, records: int) -> None:
        """Write so many records to each partition of the topic."""
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            for number in range(2 * records):
                producer.send(self.topic, b"record", partition=number % 2)

    def committed(self) -> int:
        """The sum of the committed offsets of the group."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            return sum(one.offset or 0 for one in admin.list_consumer_group_offsets(self.group).values())

    def order(self, name: str, what: str) -> None:
        """Ask a member to be ill."""
        stdin = self._patients[name].stdin
        assert stdin is not None
        stdin.write(f"{what}\n")
        stdin.flush()

    def send(self, name: str, number: int) -> None:
        """Send a signal to a member."""
        self._patients[name].send_signal(number)

    def kill(self, name: str) -> None:
        """Kill a member."""
        self._end(self._patients.pop(name), 0)

    def discharge(self, name: str) -> None:
        """End a member in order: its standard input ends."""
        patient = self._patients.pop(name)
        assert patient.stdin is not None
        patient.stdin.close()
        patient.wait(LIMIT)
        self._end(patient, 0)

    def wait_for(self, what: str, check: Callable[[], bool]) -> None:
        """Ask for the explanation until it is as expected."""
        deadline = time.monotonic() + LIMIT
        while not check():
            assert time.monotonic() < deadline, f"not within {LIMIT} s: {what}\n{self.transcript()}"

    def said(self, text: str) -> int:
        """How many explanations have a text in their first sentence."""
        return sum(text in one["text"] for one in self.explanations())

    def wait_for_end(self, name: str) -> None:
        """Wait until the program of a member has ended by itself."""
        self._patients[name].wait(LIMIT)

    def has_ended(self, lives: int) -> bool:
        """Whether the ends of so many lives of a program are told."""
        loop = self.said("again and again: it lived")
        return bool(loop) if lives == 3 else self.said("probably crashed or was killed") == lives

    def has_crashed(self, times: int) -> bool:
        """Whether so many crashes are told."""
        return self.said("probably crashed") == times

    def removed(self) -> bool:
        """Whether a member was removed because of its session."""
        return any(
            ("its session is" in one["text"] and "will be" not in one["text"]) or "blocked or paused" in one["text"]
            for one in self.explanations()
        )

    def explanations(self) -> list[dict[str, Any]]:
        """What `barnabas groups explain` says."""
        command = [sys.executable, "-m", "barnabas_client.cli", "groups", "explain", self.group, "--json"]
        result = run([*command, "-b", self.bootstrap], LIMIT)
        if result.returncode:
            return []
        found: list[dict[str, Any]] = json.loads(result.stdout)
        return found

    def transcript(self) -> str:
        """What `barnabas groups explain` says, for a failure."""
        lines = []
        for one in self.explanations():
            lines += [one["text"], *one["details"], f"To do: {one['remedy']}"]
        return "\n".join(lines)

    def _end(self, patient: subprocess.Popen[str], grace: float) -> None:
        end(patient, grace)
        for stream in (patient.stdin, patient.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue
