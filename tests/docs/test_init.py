"""docs/init.md: the broker becomes what its example declares, and prints what the page shows."""

import re
from pathlib import Path

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.init import InitError, apply, read
from tests.docs.reader import ROOT

PAGE = (ROOT / "docs/init.md").read_text("utf-8")


def block(kind: str, containing: str) -> str:
    found: list[str] = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return next(each for each in found if containing in each)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "init.yaml"
    made.write_text(block("yaml", "topics:"))
    (tmp_path / "orders.jsonl").write_text('{"item": "a table"}\n{"key": "customer-1", "value": "a lamp"}\n')
    (tmp_path / "customers.csv").write_text("customer,city\ncustomer-7,Kyrie\ncustomer-8,Riva\n")
    (tmp_path / "ada.password").write_text("lovelace\n")
    return made


async def test_the_example(tmp_path: Path, file: Path) -> None:
    config = Config(BROKER_KEYS, {"log.dirs": str(tmp_path / "data"), "offsets.topic.num.partitions": "1"})
    broker = await BrokerServer.start(config, port=0)
    try:
        done = await apply(broker, read(file))
    finally:
        await broker.stop()
    assert "".join(f"init.yaml: {line}\n" for line in done) == block("text", "user ada added")


def test_the_mistake(file: Path) -> None:
    file.write_text(file.read_text().replace("    partitions:", "    partition:"))
    with pytest.raises(InitError) as raised:
        read(file)
    assert f"broker: {str(raised.value).removeprefix(f'{file.parent}/')}\n" == block("text", "did you mean")
