"""The display of the cluster demo."""

import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rich.panel import Panel
from rich.table import Table

from examples.cluster.load import GROUP, PARTITIONS, TOPIC, Ledger, Outage, Verdict
from examples.cluster.machines import NODES
from examples.live_view import LiveView

#: Seconds over which the rate is averaged.
_SPAN: Final = 1.0


@dataclass
class Demo:
    """The state that is shown."""

    ledger: Ledger
    states: dict[int, str] = field(default_factory=lambda: dict.fromkeys(NODES, "starting"))
    leaders: Mapping[int, int] = field(default_factory=dict)
    in_sync: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    coordinator: int = -1


class View(LiveView):
    """Shows a running :class:`Demo`.

    Args:
        demo: the state to show.
    """

    def __init__(self, demo: Demo) -> None:
        super().__init__(lines=12)
        self.demo = demo
        self._last_line = 0.0
        self._seen: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def _counts(self) -> str:
        ledger, now = self.demo.ledger, time.monotonic()
        self._seen.append((now, len(ledger.offsets)))
        while len(self._seen) > 2 and self._seen[1][0] < now - _SPAN:
            self._seen.popleft()
        (since, before), elapsed = self._seen[0], max(now - self._seen[0][0], 1e-6)
        rate = (len(ledger.offsets) - before) / elapsed if now > since else 0.0
        return (
            f"acknowledged {len(ledger.offsets):,}, consumed {len(ledger.consumed):,}, "
            f"{rate:,.0f} records/s, longest pause {longest(ledger.outages)}"
        )

    def refresh(self) -> None:
        """Show the current state; in a pipe, print a line every two seconds."""
        demo, counts = self.demo, self._counts()
        if not self.live:
            if time.monotonic() - self._last_line > 2 and demo.ledger.sent:
                self._last_line = time.monotonic()
                self.log(counts)
            return
        brokers = Table(expand=True, box=None)
        for column in ("broker", "state", "leads", ""):
            brokers.add_column(column)
        for node, state in demo.states.items():
            leads = " ".join(str(number) for number, leader in sorted(demo.leaders.items()) if leader == node)
            style = "green" if state == "up" else "red" if state == "killed" else "yellow"
            role = f"coordinator of {GROUP}" if node == demo.coordinator else ""
            brokers.add_row(str(node), f"[{style}]{state}[/]", leads or "-", role)
        partitions = Table(expand=True, box=None)
        for column in (f"partition of {TOPIC}", "leader", "in sync"):
            partitions.add_column(column)
        for number in range(PARTITIONS):
            leader = demo.leaders.get(number, -1)
            in_sync = " ".join(map(str, demo.in_sync.get(number, ())))
            partitions.add_row(str(number), str(leader) if leader >= 0 else "[red]none[/]", in_sync)
        self.draw(Panel(brokers, title=counts, title_align="left"), Panel(partitions))

    def totals(self, verdict: Verdict) -> None:
        """Print the pauses, and the comparison of acknowledged and existing records."""
        for outage in self.demo.ledger.outages:
            print(
                f"broker {outage.broker} killed: next acknowledgement after {_slowest(outage.acknowledged)}, "
                f"next record consumed after {_slowest(outage.consumed)}, "
                f"next commit after {_seconds(outage.committed)}"
            )
        print(
            f"acknowledged {verdict.acknowledged:,}, found {verdict.found:,}, out of order {verdict.out_of_order:,}, "
            f"twice {verdict.twice:,}, at another offset {verdict.wrong_offset:,}, "
            f"never consumed {verdict.not_consumed:,}"
        )
        ledger = self.demo.ledger
        if ledger.refused or ledger.again:
            print(f"refused {ledger.refused:,}; consumed again after a failed commit {ledger.again:,}")
        print(
            "Each acknowledged record is in the topic once and in order."
            if verdict.kept
            else "Acknowledged records were LOST, or are out of order.",
            file=sys.stdout if verdict.kept else sys.stderr,
        )


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def _slowest(pauses: Mapping[int, float]) -> str:
    return _seconds(max(pauses.values(), default=0.0))


def longest(outages: list[Outage]) -> str:
    """Return the longest time that a partition had to wait for an acknowledgement."""
    pauses = [pause for outage in outages for pause in outage.acknowledged.values()]
    return f"{max(pauses):.1f} s" if pauses else "none"
