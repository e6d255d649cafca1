"""docs/testing.md: its examples are tests, and they pass."""

import os
import re
from pathlib import Path

import pytest

from tests.cluster.harness import etcd_binary
from tests.sampling import slow

pytestmark = pytest.mark.programs

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "testing.md"
SCHEMAS = PAGE.parent / "guide" / "schema-registry.md"
#: As a user's run, except that brokers start by forks.
OPTIONS = ["-p", "tests.nursery", "-p", "no:cacheprovider", "-W", "error"]
OPTIONS += ["-o", "asyncio_default_fixture_loop_scope=function"]


@pytest.fixture(autouse=True)
def finds_the_nursery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def has_etcd() -> bool:
    return etcd_binary() is not None or os.environ.get("CI") == "true"


def blocks(kind: str, page: Path = PAGE) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("mode", ["process", slow("thread")])
def test_the_examples_pass(pytester: pytest.Pytester, mode: str) -> None:
    (settings,) = blocks("ini")
    pytester.makefile(".ini", pytest=settings)
    # Without etcd the examples of a cluster cannot run; in CI it is there.
    examples = [each for each in blocks("python") if "kafka_cluster" not in each or has_etcd()]
    for number, example in enumerate(examples):
        pytester.makepyfile(**{f"test_example_{number}": example})
    result = pytester.runpytest_subprocess(*OPTIONS, f"--kafka-broker-mode={mode}", timeout=280)
    result.assert_outcomes(passed=len(examples))


def test_the_examples_with_schemas_pass(pytester: pytest.Pytester) -> None:
    pytest.importorskip("faststream", reason="needs faststream[confluent]")
    (example,) = blocks("py", SCHEMAS)
    pytester.makepyfile(example)
    pytester.runpytest_subprocess(*OPTIONS, timeout=120).assert_outcomes(passed=1)
