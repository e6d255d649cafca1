"""`make cluster-demo`: run the cluster demo."""

import argparse

import barnabas
from barnabas_broker.errors import BrokerError
from examples.cluster.demo import run


def main() -> None:
    """Run the demo; the exit status is 1 if an acknowledged record was lost."""
    parser = argparse.ArgumentParser(
        prog="make cluster-demo",
        description="Kill partition leaders of a three-broker cluster under load, and check that no record is lost.",
    )
    parser.add_argument("--rate", type=float, default=1000, help="records per second (default: %(default)s)")
    parser.add_argument(
        "--calm", type=float, default=3, help="seconds of load before and after each kill (default: %(default)s)"
    )
    arguments = parser.parse_args()
    try:
        kept = barnabas.run(run(arguments.rate, arguments.calm))
    except BrokerError as error:
        raise SystemExit(f"the cluster did not start: {error}") from None
    raise SystemExit(0 if kept else 1)


main()
