"""docs/testing.md: its examples are tests, and they pass."""

import os
import re
from pathlib import Path

import pytest

from tests.cluster.harness import etcd_binary
from tests.sampling import slow

pytestmark = pytest.mark.programs

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"
SCHEMAS = PAGE.parent / "guide" / "schema-registry.md"


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
    options = ["-p", "no:cacheprovider", "-W", "error", "-o", "asyncio_default_fixture_loop_scope=function"]
    result = pytester.runpytest_subprocess(*options, f"--kafka-broker-mode={mode}", timeout=280)
    result.assert_outcomes(passed=len(examples))


def test_the_examples_with_schemas_pass(pytester: pytest.Pytester) -> None:
    pytest.importorskip("faststream", reason="needs faststream[confluent]")
    (example,) = blocks("py", SCHEMAS)
    pytester.makepyfile(example)
    options = ["-p", "no:cacheprovider", "-W", "error", "-o", "asyncio_default_fixture_loop_scope=function"]
    pytester.runpytest_subprocess(*options, timeout=120).assert_outcomes(passed=1)
