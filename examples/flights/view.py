"""What the flights demo shows: a live picture on a terminal, plain lines in a pipe."""

import sys
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table


@dataclass
class Member:
    """A consumer as the demo sees it."""

    name: str
    state: str = "starting"
    partitions: list[int] = field(default_factory=list)
    flights: int = 0


@dataclass
class Demo:
    """Everything that is shown."""

    total: int
    produced: int = 0
    counted: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=8))

    @property
    def lag(self) -> int:
        """Flights that are acknowledged and not counted; a consumer may count before the producer hears."""
        return max(0, self.produced - self.counted)


class View:
    """Shows a :class:`Demo` while it goes on.

    Args:
        demo: what to show.
    """

    def __init__(self, demo: Demo) -> None:
        self.demo = demo
        self.console = Console()
        self._began = time.monotonic()
        self._told = -1
        self._progress = Progress(
            TextColumn("{task.description:9}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn()
        )
        self._produced = self._progress.add_task("produced", total=demo.total)
        self._counted = self._progress.add_task("counted", total=demo.total)
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refresh()
        if self._live is not None:
            self._live.stop()

    def tell(self, text: str) -> None:
        """Add a line to the story."""
        line = f"{time.monotonic() - self._began:5.1f} s  {text}"
        self.demo.events.append(line)
        if self._live is None:
            print(line, flush=True)

    def refresh(self) -> None:
        """Show how things stand; in a pipe a line for every tenth of the flights."""
        demo = self.demo
        if self._live is None:
            tenth = 10 * demo.counted // demo.total
            if tenth > self._told:
                self._told = tenth
                self.tell(f"produced {demo.produced:,}, counted {demo.counted:,}, lag {demo.lag:,}")
            return
        self._progress.update(self._produced, completed=demo.produced)
        self._progress.update(self._counted, completed=demo.counted)
        table = Table(expand=True, box=None)
        for column in ("member", "state", "partitions", "flights counted"):
            table.add_column(column, justify="right" if column.startswith("flights") else "left")
        for member in demo.members.values():
            table.add_row(
                member.name, member.state, " ".join(map(str, member.partitions)) or "-", f"{member.flights:,}"
            )
        story = Panel("\n".join(demo.events), title="what happened", title_align="left")
        self._live.update(
            Group(self._progress, Panel(table, title=f"group · lag {demo.lag:,}", title_align="left"), story)
        )
        self._live.refresh()

    def totals(self, counted: dict[str, int], expected: dict[str, int]) -> bool:
        """Print flights by carrier beside what the data set says; whether they are the same."""
        table = Table(title="flights by carrier")
        for column in ("carrier", "counted", "in the data set", ""):
            table.add_column(column, justify="left" if column in ("carrier", "") else "right")
        for carrier in sorted({*counted, *expected}):
            have, want = counted.get(carrier, 0), expected.get(carrier, 0)
            table.add_row(carrier, f"{have:,}", f"{want:,}", "ok" if have == want else "DIFFERS")
        have, want = sum(counted.values()), sum(expected.values())
        table.add_section()
        table.add_row("all", f"{have:,}", f"{want:,}", "ok" if have == want else "DIFFERS")
        if self._live is None:
            for carrier in sorted({*counted, *expected}):
                print(f"{carrier}  counted {counted.get(carrier, 0):7,}  in the data set {expected.get(carrier, 0):7,}")
            print(f"all counted {have:,}, in the data set {want:,}")
        else:
            self.console.print(table)
        right = counted == expected
        print(
            "Every flight was counted once." if right else "The totals differ.",
            file=sys.stdout if right else sys.stderr,
        )
        return right
