"""The command line: invalid arguments, failures and output."""

import json
import logging
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas_broker.testing import Broker
from barnabas_client.cli.output import Output
from barnabas_client.cli.servers import find_servers
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.cli import COMMAND_LINE, main
from barnabas_pipeline.cli.arguments import source_options
from barnabas_pipeline.cli.failures import spark_error
from barnabas_pipeline.cli.progress import Progress, Rate, line
from barnabas_pipeline.text import duration, size
from tests.pipeline.support import consume, produce


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["archive", "t"], "the following arguments are required: -l/--lake"),
        (["archive", "-l", "x"], "the following arguments are required: TOPIC"),
        (
            ["archive", "t", "-l", "x", "--file-size", "big"],
            "must be a size such as 128m, 1g or a number of bytes, got 'big'",
        ),
        (["archive", "t", "-l", "x", "--batch-records", "0"], "must be a number of at least 1, got '0'"),
        (["archive", "t", "-l", "x", "--conf", "spark"], "'spark' is not name=value"),
        (["replay", "p", "t", "--speed", "0x"], "must be a number above 0, got '0'"),
        (["replay", "p", "t", "--speed", "1x", "--rate", "5"], "not allowed with argument"),
        (["lag", "--since", "soon"], "'soon' is neither a duration"),
    ],
)
def test_an_invalid_command_line_is_reported_in_one_line(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("barnabas-pipeline: ")
    assert why in err
    assert err.count("\n") == 1


def test_invalid_options_fail_before_spark_starts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["archive", "t", "-l", str(tmp_path), "-o", "kafka.sasl.mechanism=PLAIN"]) == 1
    assert "give kafka.security.protocol=SASL_SSL as well" in capsys.readouterr().err


def test_missing_topics_fail_before_spark_starts(
    broker: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def session(name: str, settings: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("barnabas_pipeline.cli.archive.session", session)
    assert main(["archive", "nowhere", "-l", str(tmp_path), "-b", broker.bootstrap_servers]) == 1
    assert "there is no topic 'nowhere' at these brokers" in capsys.readouterr().err


def test_a_missing_library_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    for name in ("cli.lag", "lag.analysis"):
        monkeypatch.delitem(sys.modules, f"barnabas_pipeline.{name}", raising=False)
    assert main(["lag"]) == 1
    assert (
        capsys.readouterr().err == "barnabas-pipeline: pandas is not installed. To do: pip install 'barnabas[spark]'\n"
    )


def test_only_warnings_of_our_packages_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned(settings: object) -> None:
        logging.getLogger("barnabas_pipeline").warning("mind the %s", "gap")
        # Py4J logs this when a call is interrupted.
        logging.error("Exception while sending command.")
        raise KeyboardInterrupt

    monkeypatch.setattr("barnabas_pipeline.cli.lag.remote_for", warned)
    assert main(["lag"]) == 130
    assert capsys.readouterr().err == "barnabas-pipeline: warning: mind the gap\n"
    assert not [one for one in logging.getLogger().handlers if type(one) is logging.NullHandler]


def test_sizes_and_speeds_are_parsed() -> None:
    archive = COMMAND_LINE.parse(["archive", "t", "-l", "x", "--file-size", "1g", "--interval", "1m"])
    assert (archive.file_size, archive.interval) == (1 << 30, 60.0)
    replay = COMMAND_LINE.parse(["replay", "p", "t", "--speed", "60x"])
    assert (replay.speed, replay.rate) == (60.0, None)


def test_progress_is_formatted() -> None:
    rate = Rate(0.0)
    assert rate.at(10.0, 500) == 50
    assert rate.at(31.0, 2600) == 100
    assert line(2500, 12_500, 100, "offsets", 10_000) == "2,500 of 12,500 offsets, 100/s, lag 10,000, ETA 100 s"
    assert line(5, 5, 0, "rows", None) == "5 of 5 rows"
    assert [duration(seconds) for seconds in (7, 200, 240, 7500)] == ["7 s", "3 min 20 s", "4 min", "2 h 5 min"]
    assert [size(count) for count in (12, 2048, 5 << 30)] == ["12 B", "2.0 KiB", "5.0 GiB"]


def test_work_that_waits_for_more_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output("barnabas-pipeline"), "archive", "offsets") as progress:
        for done in (0, 5, 5, 5, 5, 6, 6):
            progress.show(done, done)
    assert [text.split()[1] for text in capsys.readouterr().err.splitlines()] == ["0", "5", "6"]


def test_lost_processes_of_spark_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(error: Exception) -> str:
        def failing(settings: object) -> None:
            raise error

        monkeypatch.setattr("barnabas_pipeline.cli.lag.remote_for", failing)
        assert main(["lag"]) == 1
        return capsys.readouterr().err

    for error in (
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
    ):
        text = fail(error)
        assert "Java process has ended" in text and "spark.driver.memory" in text and text.count("\n") == 1
    text = fail(PySparkException("Job aborted\nPython worker exited unexpectedly (crashed)\n\tat org.apache"))
    assert "a Python process of Spark was killed" in text and text.count("\n") == 1


def test_other_errors_are_not_sparks() -> None:
    assert spark_error(ValueError("x")) is None


@pytest.mark.slow
@pytest.mark.spark
def test_to_the_lake_and_back(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    produce(broker.bootstrap_servers, topic, [b'{"n":%d}' % number for number in range(10)] + [b"bad"])
    common = ["-b", broker.bootstrap_servers]
    lake = str(tmp_path / "lake")
    given = tmp_path / "schema.ddl"
    given.write_text("n BIGINT")

    assert main(["archive", topic, "--once", "-l", lake, "--schema", str(given), "--group", "keeper", *common]) == 0
    out, err = capsys.readouterr()
    assert f"{topic}: 10 records archived, lag 0" in out
    assert "1 x the value is not one JSON document" in out
    assert "archive: 11 of 11 offsets" in err

    assert main(["archive", topic, "--once", "-l", lake, "--json", *common]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["topics"][topic]["lake_records"] == 10
    assert summary["records"] == 0

    broker.create_topic(f"{topic}-copy", partitions=3)
    assert main(["replay", f"{lake}/topic={topic}", f"{topic}-copy", *common]) == 0
    assert "10 records sent" in capsys.readouterr().out
    assert len(consume(broker.bootstrap_servers, f"{topic}-copy")) == 10

    out_folder = tmp_path / "lag"
    assert main(["lag", "keeper", "-d", str(out_folder), "--interval", "500ms", *common]) == 0
    out = capsys.readouterr().out
    assert out.startswith("GROUP")
    assert "keeper" in out
    assert {path.name for path in out_folder.iterdir()} == {
        "lag.parquet",
        "stalls.parquet",
        "rebalances.parquet",
        "lag.png",
        "report.html",
    }

    assert main(["archive", topic, "--once", "-l", lake, "--format", "raw", *common]) == 1
    assert "was created with --format json" in capsys.readouterr().err
    assert main(["replay", lake, f"{topic}-nowhere", *common]) == 1
    assert "there is no topic" in capsys.readouterr().err
    broker.delete_topic(f"{topic}-copy")


def test_help_and_errors_need_no_pyspark() -> None:
    program = """
import sys
sys.modules["pyspark"] = None
from barnabas_pipeline.cli import main
assert main(["archive", "--help"]) == 0
assert main(["archive"]) == 2
assert main(["archive", "t", "-l", "x"]) == 1
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("pyspark is not installed. To do: pip install 'barnabas[spark]'\n")


def test_a_token_in_a_file_is_that_of_the_source(tmp_path: Path) -> None:
    environment = {
        "BARNABAS_SECURITY_PROTOCOL": "SASL_SSL",
        "BARNABAS_SASL_MECHANISM": "OAUTHBEARER",
        "BARNABAS_SASL_OAUTH_TOKEN_FILE": str(tmp_path / "a token"),
    }
    servers = find_servers("localhost:9093", None, environment)
    settings = Settings.of(source_options(Namespace(servers=servers, options=[])))
    assert (settings.sasl_mechanism, settings.token_file()) == ("OAUTHBEARER", tmp_path / "a token")
