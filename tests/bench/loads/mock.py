"""librdkafka's mock cluster with one broker, in a process of its own, until its standard input ends.

python -m tests.bench.loads.mock
"""

import sys

from confluent_kafka import Producer


def main() -> None:
    # Its partitions keep only 5 MB: it is fit for producing, but hardly for consuming.
    cluster = Producer({"test.mock.num.brokers": 1, "log_level": 2})
    (broker,) = cluster.list_topics(timeout=30).brokers.values()
    print(f"listening on {broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
