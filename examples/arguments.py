"""The command-line options that all examples share."""

import argparse


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser with the shared options; `about` is the docstring of the example."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT")
    made.add_argument("--topic", default="foo")
    made.add_argument("--group", default="test")
    made.add_argument("--count", type=int, help="exit after this many records (default: at Ctrl-C)")
    return made
