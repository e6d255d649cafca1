"""The alerts and dashboards of deploy/: their expressions are PromQL, of metrics and labels that a broker has."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from barnabas import Consumer, Producer
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from tests.broker.http.conftest import Http
from tests.needs import missing

ROOT: Final = Path(__file__).parents[2]
FILES: Final = ROOT / "deploy" / "helm" / "barnabas" / "files"
ALERTS: Final = FILES / "alerts.yml"
DASHBOARDS: Final = sorted(FILES.glob("*.json"))
#: Labels that Prometheus gives to each sample of a target.
TARGET: Final = {"job", "instance"}
#: Metrics that a single whole broker has not, with their type and labels.
REST: Final = {
    "barnabas_group_finding": ("gauge", {"consumergroup", "finding"}),
    "barnabas_share_group_lag": ("gauge", {"consumergroup"}),
    "barnabas_share_group_oldest_seconds": ("gauge", {"consumergroup"}),
    "barnabas_log_damaged_records": ("gauge", {"topic", "partition"}),
    "barnabas_lease_remaining_seconds": ("gauge", set[str]()),
    "barnabas_serving": ("gauge", set[str]()),
}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]


def panels(path: Path) -> list[dict[str, Any]]:
    return [each for each in json.loads(path.read_text("utf-8"))["panels"] if each["type"] != "row"]


def expressions() -> list[str]:
    """All expressions, with values for the variables of Grafana."""
    found = [str(rule["expr"]) for rule in rules()]
    found += [target["expr"] for path in DASHBOARDS for panel in panels(path) for target in panel["targets"]]
    return [text.replace("$__rate_interval", "5m") for text in found]


def selectors(expression: Any) -> Iterator[tuple[str, set[str]]]:
    """The metrics that an expression reads, with the labels that it selects by."""
    if isinstance(expression, promql_parser.VectorSelector):
        assert expression.name is not None
        yield expression.name, {each.name for each in expression.matchers.matchers}
    elif isinstance(expression, promql_parser.MatrixSelector | promql_parser.SubqueryExpr):
        inner = expression.vector_selector if isinstance(expression, promql_parser.MatrixSelector) else expression.expr
        yield from selectors(inner)
    elif isinstance(expression, promql_parser.BinaryExpr):
        yield from selectors(expression.lhs)
        yield from selectors(expression.rhs)
    elif isinstance(expression, promql_parser.Call):
        for each in expression.args:
            yield from selectors(each)
    elif isinstance(expression, promql_parser.AggregateExpr | promql_parser.ParenExpr | promql_parser.UnaryExpr):
        yield from selectors(expression.expr)


async def exposed(tmp_path: Path) -> dict[str, tuple[str, set[str]]]:
    """The type and the labels of each metric of a broker that has topics, groups of both protocols and transactions."""
    config = Config(BROKER_KEYS, {"log.dirs": str(tmp_path), "offsets.topic.num.partitions": "1"})
    broker = await BrokerServer.start(config, port=0, http_port=0)
    address = f"127.0.0.1:{broker.port}"
    try:
        producer = Producer(bootstrap_servers=address, transactional_id="t")
        async with producer, producer.transaction():
            await producer.send("orders", b"a table")
        async with aiohttp.ClientSession() as session:
            client = Http(session)
            client.broker = broker
            classic = Consumer("orders", bootstrap_servers=address, group_id="a", auto_offset_reset="earliest")
            new = Consumer("orders", bootstrap_servers=address, group_id="b", group_protocol="consumer")
            async with classic, new:
                await classic.getone()
                await classic.commit()
                await new.getmany(timeout_ms=0)
                text = (await client.get("/metrics")).text
    finally:
        await broker.stop()
    found: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            _, labels = found.setdefault(sample.name, (family.type, set()))
            labels |= set(sample.labels)
    return found


async def test_expressions_read_metrics_that_a_broker_has(tmp_path: Path) -> None:
    metrics = REST | await exposed(tmp_path)
    source = "".join(path.read_text("utf-8") for path in (ROOT / "broker" / "barnabas_broker" / "http").glob("*.py"))
    assert [name for name in REST if f'"{name}"' not in source] == []
    wrong = []
    for text in expressions():
        read = [(name, by) for name, by in selectors(promql_parser.parse(text)) if name != "up"]
        assert read, text
        for name, by in read:
            kind, labels = metrics.get(name, ("unknown", set()))
            rated = re.search(rf"(rate|increase)\({name}", text) is not None
            if name not in metrics or not by <= labels | TARGET or rated != (kind in ("counter", "histogram")):
                wrong.append((name, kind, by - labels - TARGET, text))
    assert wrong == []


def test_every_dashboard_shows_what_can_be_understood() -> None:
    assert [path.stem for path in DASHBOARDS] == ["brokers", "groups", "queues"]
    for path in DASHBOARDS:
        board = json.loads(path.read_text("utf-8"))
        names = {each["name"] for each in board["templating"]["list"]}
        assert set(re.findall(r"\$\{?([a-z]\w*)", path.read_text("utf-8"))) <= names
        assert board["uid"] == f"barnabas-{path.stem}"
        identifiers = [panel["id"] for panel in board["panels"]]
        assert len(set(identifiers)) == len(identifiers)
        cells = [
            (x, y)
            for panel in board["panels"]
            for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
            for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
        ]
        assert len(set(cells)) == len(cells), "panels overlap"
        assert max(x for x, _ in cells) < 24
        assert [panel["title"] for panel in panels(path) if panel["datasource"]["uid"] != "${datasource}"] == []


def test_an_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"].endswith(".") or "{{" in rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)


def test_the_page_lists_the_alerts() -> None:
    page = (ROOT / "docs" / "observing.md").read_text("utf-8")
    _, _, section = page.partition("## What to alert on")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", section.partition("\n## ")[0], re.MULTILINE)
    assert rows == [(rule["alert"], rule["labels"]["severity"]) for rule in rules()]


@pytest.mark.programs
def test_promtool_accepts_the_alerts() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        missing(
            "promtool is not installed: go install github.com/prometheus/prometheus/cmd/promtool@latest",
            on_this_machine=False,
        )
    command = [promtool, "check", "rules", "--lint=all", "--lint-fatal", str(ALERTS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
