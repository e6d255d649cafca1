"""The simplest consumer: iterate, and print the key, the value and the offset of each record.

python -m examples.print_records --topic foo

The group commits its offsets: after a restart the program continues there.
"""

from barnabas import Consumer, run
from examples.arguments import parser


async def main(bootstrap_servers: str, topic: str, group: str, count: int | None) -> None:
    """Print `count` records."""
    seen = 0
    async with Consumer(
        topic, bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            print(f"Received message: ({record.key!r}, {record.value!r}) at offset {record.offset}", flush=True)
            seen += 1
            if seen == count:
                break


if __name__ == "__main__":
    run(main(**vars(parser(__doc__).parse_args())))
