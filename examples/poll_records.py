"""The simplest consumer: poll, and print the key, the value and the offset of each record.

python -m examples.poll_records --topic foo

A poll waits up to a second and returns a list, which may be empty. The group commits its offsets: after a restart the
program continues there.
"""

from barnabas import Consumer, run
from examples.arguments import parser


async def main(bootstrap_servers: str, topic: str, group: str, count: int | None) -> None:
    """Print `count` records."""
    seen = 0
    consumer = Consumer(topic, bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest")
    async with consumer:
        while count is None or seen < count:
            left = None if count is None else count - seen
            for record in await consumer.poll(timeout_ms=1000, max_records=left):
                seen += 1
                print(f"Received message: ({record.key!r}, {record.value!r}) at offset {record.offset}", flush=True)


if __name__ == "__main__":
    run(main(**vars(parser(__doc__).parse_args())))
