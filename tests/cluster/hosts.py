"""Several hosts on one machine: network namespaces around a bridge, whose links can be cut (needs root).

If the *bridge's* end of a link goes down, the host's connections stay open and silent, as in a real network partition.
A host can also drop what one other host sends to it: a cut between two hosts, or of one direction.
Without root all hosts are this machine, and no host can be disconnected.
"""

import ctypes
import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
#: The kind of namespace that `setns` enters, from <sched.h>. Python has os.setns from 3.12 on.
_CLONE_NEWNET: Final = 0x40000000
_NET: Final = "10.77"


def namespaces_work() -> bool:
    """Whether this process may create network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"bn-{uuid.uuid4().hex[:8]}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, timeout=30).returncode == 0
    if made:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=30)
    return made


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


class Hosts:
    """Hosts by name, each with an address. This process runs on one of them."""

    def __init__(self, names: Sequence[str], *, cuttable: bool) -> None:
        self.names = list(names)
        self.cuttable = cuttable
        self._mark = uuid.uuid4().hex[:6]
        self._subnet = f"{_NET}.{os.getpid() % 250}"
        self._dropped: set[tuple[str, str]] = set()
        if cuttable:
            self._make()

    def address(self, name: str) -> str:
        """Return the address of a host."""
        return f"{self._subnet}.{self.names.index(name) + 2}" if self.cuttable else "127.0.0.1"

    def on(self, name: str, command: Sequence[str]) -> list[str]:
        """Return the command line that runs `command` on a host."""
        return ["ip", "netns", "exec", self._space(name), *command] if self.cuttable else list(command)

    def enter(self, name: str) -> None:
        """Let the calling thread, and those that it starts, run on a host.

        Raises:
            OSError: the system refuses it.
        """
        if self.cuttable:
            with Path(f"/run/netns/{self._space(name)}").open() as space:
                if _LIBC.setns(space.fileno(), _CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"cannot enter the network namespace of {name}")

    def cut(self, name: str) -> None:
        """Disconnect a host; its connections stay open."""
        self._port(name, "down")

    def drop(self, source: str, target: str) -> None:
        """Drop the packets from one host to another one, on open connections as well. The other direction works."""
        if self.cuttable and (source, target) not in self._dropped:
            self._dropped.add((source, target))
            self._rule("add", source, target)

    def mend(self, name: str) -> None:
        """Connect a host again, and let its packets and those to it pass."""
        self._port(name, "up")
        for source, target in [pair for pair in self._dropped if name in pair]:
            self._dropped.discard((source, target))
            self._rule("del", source, target)

    def _rule(self, deed: str, source: str, target: str) -> None:
        priority = str(10 + self.names.index(source))
        _ip("-n", self._space(target), "rule", deed, "pref", priority, "from", self.address(source), "blackhole")

    def _space(self, name: str) -> str:
        return f"bn-{self._mark}-{name}"

    def _port(self, name: str, state: str) -> None:
        if self.cuttable:
            _ip("-n", self._space("hub"), "link", "set", self._cable(name), state)

    def _cable(self, name: str) -> str:
        index = 0 if name == "here" else self.names.index(name) + 1
        return f"b{self._mark}{index}"

    def _make(self) -> None:
        hub = self._space("hub")
        _ip("netns", "add", hub)
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for index, name in enumerate(["here", *self.names]):
            far, near = f"n{self._mark}{index}", self._cable(name)
            _ip("link", "add", far, "type", "veth", "peer", "name", near, "netns", hub)
            _ip("-n", hub, "link", "set", near, "master", "bridge", "up")
            inside: tuple[str, ...] = ()
            space = self._space(name)
            if name != "here":
                _ip("netns", "add", space)
                _ip("link", "set", far, "netns", space)
                inside = ("-n", space)
                _ip(*inside, "link", "set", "lo", "up")
            _ip(*inside, "addr", "add", f"{self._subnet}.{index + 1}/24", "dev", far)
            _ip(*inside, "link", "set", far, "up")
            if name != "here":
                # Rules of `drop` come before the table of the host's own addresses. Without the last setting, packets
                # for open connections would not be looked up at all.
                _ip(*inside, "rule", "add", "pref", "100", "lookup", "local")
                _ip(*inside, "rule", "del", "pref", "0")
                _ip("netns", "exec", space, "sh", "-c", "echo 0 > /proc/sys/net/ipv4/tcp_early_demux")

    def close(self) -> None:
        """Remove the hosts, after their processes have ended."""
        if self.cuttable:
            for name in ["hub", *self.names]:
                subprocess.run(["ip", "netns", "del", self._space(name)], capture_output=True, timeout=30)
