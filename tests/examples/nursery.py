"""Starts the exactly-once example repeatedly and quickly: imports its modules once, then forks.

python -m tests.examples.nursery BOOTSTRAP TOPIC GROUP DATABASE

Reads commands from stdin, "start" or "kill" on a line each, and answers each with a line on stdout.
"""

import asyncio
import os
import signal
import sys

from examples import exactly_once


def start(servers: str, topic: str, group: str, database: str) -> int:
    """Start the example; return its process id."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
        try:
            asyncio.run(exactly_once.main(servers, topic, group, None, database, member="the-one"))
        finally:
            os._exit(status)  # it should have run until it was killed
    return child


def main(*arguments: str) -> None:
    """Serve until stdin ends."""
    servers, topic, group, database = arguments
    child = 0
    for line in sys.stdin:
        if line.strip() == "start":
            child = start(servers, topic, group, database)
            answer = "started"
        else:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            child = 0
            answer = "killed" if os.WIFSIGNALED(status) else f"it had ended before: {os.WEXITSTATUS(status)}"
        print(answer, flush=True)
    if child:
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
