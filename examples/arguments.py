"""What all examples share: their command-line options, and their end at Ctrl-C."""

import argparse
import asyncio
from collections.abc import Coroutine
from typing import Any


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser with the shared options; `about` is the docstring of the example."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT")
    made.add_argument("--topic", default="foo")
    made.add_argument("--group", default="test")
    made.add_argument("--count", type=int, help="exit after this many records (default: at Ctrl-C)")
    return made


def run(program: Coroutine[Any, Any, None]) -> None:
    """Run an example. Ctrl-C stops its consumer, and exits with 130, as a shell expects."""
    try:
        asyncio.run(program)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
