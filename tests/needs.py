"""What tests need from the machine. Where it is missing, a test is skipped; under ``CI=true`` it fails."""

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NoReturn

import pytest

#: What Spark 4 and the brokers of Kafka 4 are compiled for.
OLDEST_JAVA: Final = 17
_INSTALL_JAVA: Final = f"install Java {OLDEST_JAVA} or 21, for example with: apt install openjdk-17-jre-headless"


#: What other systems than Linux do not show: limits, descriptors and sockets of other processes.
LINUX: Final = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows that of other processes")


def missing(reason: str, *, on_this_machine: bool = True) -> NoReturn:
    """End the test because something that it needs cannot be used.

    On a developer's machine the test is skipped. Under ``CI=true`` it fails: skips are not read there, and a check that
    never runs again would go unnoticed.

    Args:
        reason: one line that says what is missing and how to get it.
        on_this_machine: whether CI must have it. Pass False for what a machine may lack, such as a tool that none of
            our extras installs: the test is then skipped in CI as well.
    """
    if os.environ.get("CI") == "true" and on_this_machine:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def java() -> str | None:
    """Return the command of Java, from JAVA_HOME or the PATH."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return str(Path(home) / "bin" / "java")
    return shutil.which("java")


def java_problem() -> str | None:
    """Return in one line why Java cannot be used, and what to do; None if it can."""
    command = java()
    if command is None:
        return f"java is neither under JAVA_HOME nor on the PATH: {_INSTALL_JAVA}"
    return _java_problem(command)


@functools.cache  # many ask, and the answer costs a JVM
def _java_problem(command: str) -> str | None:
    try:
        banner = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command} does not run ({type(error).__name__}): {_INSTALL_JAVA}"
    found = re.search(r'version "(\d+)', banner)
    if found is None or int(found[1]) < OLDEST_JAVA:
        return f"{command} is version {found[1] if found else 'unknown'}: {_INSTALL_JAVA}"
    return None
