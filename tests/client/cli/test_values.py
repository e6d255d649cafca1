"""Values on a command line, record formats, and tables."""

from datetime import datetime

import pytest

from barnabas_client.cli import values
from barnabas_client.cli.formats import compile_format, json_line, unescape
from barnabas_client.cli.output import Column, Output, Style
from barnabas_client.structs import ConsumerRecord
from barnabas_protocol.internal_topics import partition_for

RECORD: ConsumerRecord = ConsumerRecord("t", 1, 22, 333, 0, b"k", b"v\xff", (("h", b"1"), ("h", None)))


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("10m", 600_000), ("1h30m", 5_400_000), ("500ms", 500), ("1.5s", 1_500), ("2d", 172_800_000), ("0s", 0),
        ("1w", 604_800_000), ("PT10M", 600_000), ("P1DT2H3M4.5S", 93_784_500), ("P2D", 172_800_000), ("pt1s", 1_000),
    ],
)  # fmt: skip
def test_durations(text: str, milliseconds: int) -> None:
    assert values.duration(text) == milliseconds
    assert values.since(text) == (milliseconds, None, None)


@pytest.mark.parametrize("text", ["", "10", "m", "10x", "1h 30m", "-5m", "P", "PT", "P1DT", "PT1D", "10m!"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        values.duration(text)


def test_times() -> None:
    assert values.instant("1700000000000") == 1_700_000_000_000
    assert values.instant("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert values.instant("2023-11-14T23:13:20.500+01:00") == 1_700_000_000_500
    assert values.instant("2023-11-14") == datetime(2023, 11, 14).timestamp() * 1000
    assert values.since("2023-11-14T22:13:20Z").ms(0) == 1_700_000_000_000
    assert values.since("10s").ms(1_700_000_000_000) == 1_699_999_990_000
    assert (values.instant("1812-01-01"), values.since("100w").ms(5)) == (0, 0)
    assert values.seconds("10") == 10
    assert values.seconds("250ms") == 0.25
    for wrong in ("yesterday", "2023-13-01", "-5"):
        with pytest.raises(ValueError, match="is not a time"):
            values.instant(wrong)
    with pytest.raises(ValueError, match="neither a duration"):
        values.since("soon")


def test_partitions() -> None:
    assert values.topic_spec("t") == ("t", None)
    assert values.topic_spec("t:0, 2") == ("t", (0, 2))
    for wrong in ("", ":0", "t:", "t:a", "t:0,"):
        with pytest.raises(ValueError, match="is not a topic with partitions"):
            values.topic_spec(wrong)
    assert values.shown_partitions([("b", 0), ("a", 1), ("a", 0)]) == "a:0,1, b:0"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%t:%p:%o\n", b"t:1:22\n"),
        (r"%k=%v", b"k=v\xff"),
        (r"%s %S %K %V", b"v\xff 2 1 2"),
        (r"%T|%h", b"333|h=1,h=NULL"),
        (r"100%% \x41\t\\ \q", b"100% A\t\\ \\q"),
        ("é", "é".encode()),
        ("", b""),
        ("%", b"%"),
        ("\\", b"\\"),
    ],
)
def test_formats(text: str, printed: bytes) -> None:
    assert compile_format(text)(RECORD) == printed


def test_null_and_bytes_that_are_not_text() -> None:
    null = RECORD._replace(key=None, value=None, headers=())
    assert compile_format("%k|%v|%K|%V|%h")(null) == b"||-1|-1|"
    assert json_line(RECORD) == (
        b'{"topic":"t","partition":1,"offset":22,"timestamp":333,"key":"k","value":{"base64":"dv8="},'
        b'"headers":[["h","1"],["h",null]]}\n'
    )
    with pytest.raises(ValueError, match="the format has %x"):
        compile_format("%x")
    assert (unescape(r"\t"), unescape(r"a\x3ab"), unescape("%%:")) == ("\t", "a:b", "%%:")


@pytest.mark.parametrize(
    ("group", "partition"), [("test-group", 12), ("my-group", 12), ("polygenelubricants", 0), ("😀", 49)]
)
def test_the_partition_of_a_group(group: str, partition: int) -> None:
    assert partition_for(group, 50) == partition


def test_columns_and_colour(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    columns = (Column("A", 4), Column("LONG", 2), Column("LAST", 0))
    plain = Output()
    plain.table(columns, [("a", None, "x"), ("longer", ("9", Style.WARN), "")])
    assert capsys.readouterr().out == "A      LONG LAST\na      -    x\nlonger 9    \n"
    assert not plain.color
    bright = Output(color=True)
    assert bright.table_lines(columns, [("a", ("9", Style.WARN), "x")]) == [
        "\x1b[1mA    LONG LAST\x1b[0m",
        "a    \x1b[33m9   \x1b[0m x",
    ]
    bright.error("one\n  line")
    assert capsys.readouterr().err == "barnabas: one line\n"
