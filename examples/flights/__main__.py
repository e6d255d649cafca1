"""`make demo`: run the flights demo on the real data."""

import argparse

import barnabas
from examples.flights.demo import read_flights, run


def main() -> None:
    """Run the demo on the real data."""
    parser = argparse.ArgumentParser(
        prog="make demo", description="Count 336,776 flights with a changing consumer group, each flight once."
    )
    parser.add_argument("--rate", type=float, default=18_000, help="flights per second (default: %(default)s)")
    rate = parser.parse_args().rate
    try:
        kept = barnabas.run(run(read_flights(), rate))
    except ImportError as error:
        raise SystemExit(f"{error.name} is missing: run `make demo`, which installs it") from None
    raise SystemExit(0 if kept else 1)


main()
