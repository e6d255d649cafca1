"""librdkafka's mock cluster with one broker, in a process of its own, until its standard input ends.

python -m tests.bench.loads.mock
"""

import sys

from confluent_kafka import Producer


def main() -> None:
    # Its partitions keep what fits into 5 MB: it can be produced to for ever, and consumed from hardly.
    cluster = Producer({"test.mock.num.brokers": 1, "log_level": 2})
    (broker,) = cluster.list_topics(timeout=30).brokers.values()
    print(f"listening on {broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
