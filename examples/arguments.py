"""The command-line arguments that all examples have."""

import argparse


def parser(about: str | None) -> argparse.ArgumentParser:
    """A parser for the cluster, the topic, the group and the number of records; `about` is the head of the example."""
    made = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT")
    made.add_argument("--topic", default="foo")
    made.add_argument("--group", default="test")
    made.add_argument("--count", type=int, help="end after this number of records (default: at Ctrl-C)")
    return made
