"""The display of the flights demo."""

import sys
from dataclasses import dataclass, field

from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.live_view import LiveView


@dataclass
class Member:
    """The state of a consumer."""

    name: str
    state: str = "starting"
    partitions: list[int] = field(default_factory=list)
    flights: int = 0


@dataclass
class Demo:
    """The state that is shown."""

    total: int
    produced: int = 0
    counted: int = 0
    members: dict[str, Member] = field(default_factory=dict)

    @property
    def lag(self) -> int:
        """Flights that are acknowledged but not counted; at least 0: counts may arrive before acknowledgements."""
        return max(0, self.produced - self.counted)


class View(LiveView):
    """Shows a running :class:`Demo`.

    Args:
        demo: the state to show.
    """

    def __init__(self, demo: Demo) -> None:
        super().__init__(lines=8)
        self.demo = demo
        self._last_tenth = -1
        self._progress = Progress(
            TextColumn("{task.description:9}"), BarColumn(None), MofNCompleteColumn(), TimeElapsedColumn()
        )
        self._produced = self._progress.add_task("produced", total=demo.total)
        self._counted = self._progress.add_task("counted", total=demo.total)

    def refresh(self) -> None:
        """Show the current state; in a pipe, print a line for every tenth of the flights."""
        demo = self.demo
        if not self.live:
            tenth = 10 * demo.counted // demo.total
            if tenth > self._last_tenth:
                self._last_tenth = tenth
                self.log(f"produced {demo.produced:,}, counted {demo.counted:,}, lag {demo.lag:,}")
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
        self.draw(self._progress, Panel(table, title=f"group · lag {demo.lag:,}", title_align="left"))

    def totals(self, counted: dict[str, int], expected: dict[str, int]) -> bool:
        """Print the counted flights by carrier and those of the data set; return whether they are equal."""
        table = Table(title="flights by carrier")
        for column in ("carrier", "counted", "in the data set", ""):
            table.add_column(column, justify="left" if column in ("carrier", "") else "right")
        for carrier in sorted({*counted, *expected}):
            have, want = counted.get(carrier, 0), expected.get(carrier, 0)
            table.add_row(carrier, f"{have:,}", f"{want:,}", "ok" if have == want else "DIFFERS")
        have, want = sum(counted.values()), sum(expected.values())
        table.add_section()
        table.add_row("all", f"{have:,}", f"{want:,}", "ok" if have == want else "DIFFERS")
        if not self.live:
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
