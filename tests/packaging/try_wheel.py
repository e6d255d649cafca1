"""Install a wheel into a clean environment, and run the first Python example of the README there: ``make dist``.

::

    python -m tests.packaging.try_wheel dist/barnabas-0.1.0-py3-none-any.whl --sbom build/barnabas-0.1.0.cdx.json

The environment has the wheel and its required dependencies, and nothing of this checkout: what the wheel lacks is
missing here too. The example is the text of the page, with the address of a broker from the same environment. If it
reads, it gets records from ``barnabas produce``. It passes when it ends, or prints a line. ``--sbom`` writes what the
environment contains as a bill of materials in CycloneDX's format.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.interop import process

ROOT: Final = Path(__file__).parents[2]
#: Seconds for the example, and for the broker to start.
LIMIT: Final = 60.0
#: Where the README's broker listens. This run uses a free port instead.
ADDRESS: Final = "localhost:9092"


def first_example(page: str) -> str:
    """Return the first Python program of a page: a block of its own, or what a shell block gives to ``python``.

    Raises:
        ValueError: the page has none.
    """
    found = re.search(r"^(?:```python[^\n]*|python <<'END')\n(.*?)^(?:```|END)$", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError("README.md has no Python example")
    return found[1]


@contextmanager
def _broker(scripts: Path, folder: Path) -> Iterator[str]:
    """A broker of the environment, by its address."""
    command = [str(scripts / "broker"), "--port", "0", "--data-dir", str(folder / "data")]
    broker = process.spawn(command, subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT)
    timer = threading.Timer(LIMIT, broker.kill)
    timer.start()
    try:
        assert broker.stdout is not None
        said = ""
        while (found := re.search(r"listening on (\S+:\d+)", said)) is None:
            line = broker.stdout.readline()
            if not line:
                raise RuntimeError(f"the broker ended before it was listening:\n{said}")
            said += line
        timer.cancel()
        # A full pipe would stop the broker.
        threading.Thread(target=broker.stdout.read, daemon=True).start()
        yield found[1]
    finally:
        timer.cancel()
        process.end(broker, 10.0)


def _run(scripts: Path, folder: Path, code: str, address: str) -> str:
    """Run the example until it ends or prints a line; return what it printed."""
    program = folder / "example.py"
    program.write_text(code.replace(ADDRESS, address), "utf-8")
    topic = re.search(r'Consumer\(\s*"([\w.-]+)"', code)
    with subprocess.Popen(
        [scripts / "python", "-u", "-W", "error", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
    ) as example:
        assert example.stdout is not None and example.stderr is not None
        printed: list[str] = []
        read_line = example.stdout.readline
        reader = threading.Thread(target=lambda: printed.append(read_line()))
        reader.start()
        deadline = time.monotonic() + LIMIT
        try:
            while reader.is_alive() and time.monotonic() < deadline:
                if topic is not None:
                    produce = [scripts / "barnabas", "produce", topic[1], "--bootstrap-servers", address]
                    subprocess.run(produce, input="first\n", text=True, check=True, timeout=LIMIT, cwd=folder)
                reader.join(timeout=1.0)
            if not any(printed) and example.poll() != 0:
                example.kill()
                status, errors = example.wait(), example.stderr.read()
                raise RuntimeError(f"the example printed no record, and ended with status {status}:\n{errors}")
        finally:
            example.kill()
            reader.join(LIMIT)
        return "".join(printed)


def try_wheel(wheel: Path, sbom: Path | None = None) -> str:
    """Install `wheel` into a clean environment, run the example, and return its first line.

    Args:
        wheel: the file.
        sbom: where to write what the environment contains.

    Raises:
        RuntimeError: the broker does not start, or the example fails.
        subprocess.CalledProcessError: the wheel cannot be installed, or a command of it fails.
    """
    with tempfile.TemporaryDirectory(prefix="barnabas-wheel-") as name:
        folder = Path(name)
        # Without pip, which would be listed as if the wheel needed it.
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=300)
        scripts = folder / "venv" / "bin"
        pip = [sys.executable, "-m", "pip", "--python", str(scripts / "python"), "--disable-pip-version-check"]
        subprocess.run([*pip, "install", "--quiet", str(wheel)], check=True, timeout=600)
        if sbom is not None:
            _write_sbom(scripts / "python", sbom)
        code = first_example((ROOT / "README.md").read_text("utf-8"))
        with _broker(scripts, folder) as address:
            return _run(scripts, folder, code, address)


def _write_sbom(python: Path, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "cyclonedx_py", "environment", "--pyproject", str(ROOT / "pyproject.toml")]
    command += ["--mc-type", "application", "--output-reproducible", "--output-file", str(file), str(python)]
    subprocess.run(command, check=True, timeout=120)


def main() -> None:
    """Try the wheel of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.try_wheel")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--sbom", type=Path)
    given = parser.parse_args()
    line = try_wheel(given.wheel.resolve(), given.sbom).strip()
    print(f"{given.wheel}: the README's first example runs in a clean environment: {line or 'it prints nothing'}")


if __name__ == "__main__":
    main()
