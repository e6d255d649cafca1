"""The plugin that measures processor time counts programs, while they run and when they have ended."""

import subprocess
import sys

import pytest

from tests.needs import missing
from tests.times import processor_time

WORK = 0.2
PROGRAM = f"""
import time
while time.process_time() < {WORK}: pass
print("worked", flush=True)
input()
"""


@pytest.mark.programs
def test_a_program_is_counted_while_it_runs_and_afterwards() -> None:
    if sys.platform != "linux":
        missing("only Linux shows the processor time of other programs in /proc", on_this_machine=False)
    began = processor_time()
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"worked\n"
        # The kernel counts in hundredths of a second.
        running = processor_time() - began
        assert running > WORK * 0.8
        program.communicate(b"\n")
    assert processor_time() - began > WORK * 0.8
