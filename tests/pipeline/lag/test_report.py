"""The report: it is self-contained, shows every group, and escapes names."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd

from barnabas_pipeline.lag import rebalances as lag_rebalances
from barnabas_pipeline.lag import rows as lag_rows
from barnabas_pipeline.lag.analysis import LagTables
from barnabas_pipeline.lag.chart import groups_by_lag, merged
from barnabas_pipeline.lag.report import page, summary, write

HOSTILE = "<script>alert(1)</script> $x^$ \x07"


def tables(*, events: bool = True, broken: int = 0, interval: int = 10_000) -> LagTables:
    times = lag_rows.points(0, 60 * interval, interval)
    ends = {("orders", 0): np.arange(len(times), dtype=float) * 10}
    rows = [("calm", "orders", 0, at, at * 10.0) for at in range(len(times))]
    rows += [(HOSTILE, "orders", 0, at, at * 10.0) for at in range(20)]
    commits = pd.DataFrame(rows, columns=["group", "topic", "partition", "point", "committed"])
    progress = lag_rows.progress(times, commits, ends)
    why = {"group": HOSTILE, "time": 200_000, "until": 201_500, "generation": 3, "cause": "member_expired"}
    why |= {
        "text": "worker <1> missed its session.",
        "remedy": "Look at its log.",
        "details": "",
        "gap_seconds": np.nan,
    }
    rebalances = pd.DataFrame([why] if events else [], columns=[*lag_rebalances.COLUMNS, "gap_seconds"])
    return LagTables(times, progress, lag_rows.stalls(progress, 30_000), rebalances, events, broken)


class Seen(HTMLParser):
    """Collects tags, their attributes, and text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_self_contained_and_complete() -> None:
    seen = Seen()
    seen.feed(page(tables(), 600_000))
    assert "script" not in seen.tags
    assert "link" not in seen.tags
    assert len(seen.sources) == 2
    assert all(source.startswith("data:image/svg+xml;base64,") for source in seen.sources)
    assert not re.search(r"@import|url\(", seen.text)
    assert HOSTILE in seen.text
    assert "worker <1> missed its session." in seen.text
    assert "Look at its log." in seen.text
    assert "Stalls: nothing consumed while more was produced" in seen.text


def test_the_page_names_missing_information() -> None:
    text = page(tables(events=False, broken=3), 600_000)
    assert "the causes of rebalances are not known" in text
    assert "3 records of __consumer_offsets could not be read" in text


def test_the_tiles_say_what_the_rows_say() -> None:
    made = tables(events=False, interval=250)
    text = page(made, 600_000)
    assert "one point every 250 ms." in text
    caught_up = made.rows[made.rows["group"] == "calm"].copy()
    caught_up["lag_seconds"] = [14.25, *[0.0] * (len(caught_up) - 1)]
    text = page(LagTables(made.times, caught_up, made.stalls, made.rebalances, True, 0), 600_000)
    assert '<b>14 s</b><span class="soft">maximum time behind' in text


def test_files_are_written(tmp_path: Path) -> None:
    made = tables()
    write(made, tmp_path, 600_000)
    assert (tmp_path / "lag.png").read_bytes().startswith(b"\x89PNG")
    lag = pd.read_parquet(tmp_path / "lag.parquet")
    assert list(lag.columns) == lag_rows.COLUMNS
    assert len(lag) == len(made.rows)
    assert str(lag["time"].iloc[-1]) == "1970-01-01 00:10:00+00:00"
    assert len(pd.read_parquet(tmp_path / "stalls.parquet")) == 1
    assert len(pd.read_parquet(tmp_path / "rebalances.parquet")) == 1
    result = summary(made, tmp_path)
    assert list(result["groups"]) == [HOSTILE, "calm"]
    assert result["groups"][HOSTILE] == {"lag": 410, "lag_seconds": 410.0, "stalls": 1, "rebalances": 1}
    assert result["groups"]["calm"] == {"lag": 0, "lag_seconds": 0.0, "stalls": 0, "rebalances": 0}


def test_groups_are_sorted_by_lag() -> None:
    assert groups_by_lag(tables()) == [HOSTILE, "calm"]


def test_touching_spans_are_merged() -> None:
    assert merged([(5, 9), (1, 3), (3, 4), (8, 12)]) == [(1, 4), (5, 12)]
