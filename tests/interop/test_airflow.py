"""Airflow's provider for Kafka, unchanged: the example of docs/testing.md.

Airflow takes 300 MB, and pins versions of what it depends on. So it gets an environment of its own, if BARNABAS_AIRFLOW
is set; what it does not have itself, pytest and Barnabas, it finds in the environment of the tests.
"""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
SECONDS = 900

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.timeout(2 * SECONDS),
    pytest.mark.skipif(not os.environ.get("BARNABAS_AIRFLOW"), reason="BARNABAS_AIRFLOW is not set: 300 MB to install"),
]


def test_the_example_passes(tmp_path: Path) -> None:
    folder = tmp_path / "airflow"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=SECONDS)
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "apache-airflow-providers-apache-kafka"]
    subprocess.run(install, check=True, timeout=SECONDS)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (packages / "packages_of_the_tests.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    (example,) = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (tmp_path / "test_example.py").write_text(example)
    options = ["-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function", f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", *options, str(tmp_path / "test_example.py")],
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
