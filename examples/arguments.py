"""The command line that the examples have in common."""

import argparse


def parser(about: str | None) -> argparse.ArgumentParser:
    """Where the cluster is, what is read, and when to end; `about` is the example's own head."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT")
    made.add_argument("--topic", default="foo")
    made.add_argument("--group", default="test")
    made.add_argument("--count", type=int, help="end after so many records; without it, at Ctrl-C")
    return made
