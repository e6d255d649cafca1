"""A worker of a share group, with confluent-kafka: prints the number of each record that it gets, and of each that it
has acknowledged.

Run by tests/interop/test_share_workers.py, which kills one of them.
"""

import sys

from confluent_kafka import ShareConsumer


def main(bootstrap_servers: str, group: str, topic: str) -> None:
    """Work until the standard input is closed; then leave the group."""
    consumer = ShareConsumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group, "share.acknowledgement.mode": "explicit"}
    )
    consumer.subscribe([topic])
    say("subscribed", [""])
    while True:
        numbers = []
        for message in consumer.poll(0.5):
            if message.error() is None:
                numbers.append((message.value() or b"").decode())
                consumer.acknowledge(message)
        if not numbers:
            continue
        say("got", numbers)
        if all(error is None for error in consumer.commit_sync().values()):
            say("done", numbers)


def say(word: str, numbers: list[str]) -> None:
    """Print a line for each number, at once."""
    sys.stdout.write("".join(f"{word} {number}\n" for number in numbers))
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
