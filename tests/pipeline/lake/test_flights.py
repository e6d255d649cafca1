"""The pipeline demo with real records: produce, archive, query with Spark SQL, and compare with pandas."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas_client.cli.output import Output
from barnabas_pipeline.lake import live_files, snapshot
from examples.flights.data import all_flights
from examples.flights.pipeline import TOPIC, expected, run, same


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_week_of_flights_in_the_lake_matches_pandas(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flights = all_flights()
    week = flights[(flights["month"] == 2) & (flights["day"] <= 7)]
    assert run(spark, week, tmp_path / "out", Output())
    out = capsys.readouterr().out
    assert "The results of Spark SQL and pandas are the same." in out
    assert "DIFFERS" not in out

    table = tmp_path / "out" / "lake" / f"topic={TOPIC}"
    state = snapshot(table)
    assert sum(state.offsets.values()) == state.rows == len(week)
    # Seven local days are on eight UTC days.
    assert {file.date for file in state.files.values()} == {f"2013-02-0{day}" for day in range(1, 9)}
    assert len(live_files(table)) == len(state.files)
    assert (tmp_path / "out" / "lag" / "report.html").stat().st_size > 1_000


def test_a_difference_is_detected() -> None:
    some = all_flights().head(500)
    right = expected(some)
    assert same(right, expected(some))
    for column in ("flights", "departed", "delay"):
        wrong = right.copy()
        wrong.loc[3, column] += 1
        assert not same(wrong, right)
    assert not same(right.iloc[:-1], right)
