"""Commit offsets automatically: every second, for the records of earlier polls.

python -m examples.auto_commit --topic foo --topic2 bar

The group reads two topics, and assigns each partition to one of its consumers. If a consumer sends no heartbeat for
session_timeout_ms, the group removes it and assigns its partitions to the others. These start at the last commit: a few
records may be processed twice, but none is skipped.
"""

from barnabas import Consumer, run
from examples.arguments import parser


async def main(bootstrap_servers: str, topic: str, topic2: str, group: str, count: int | None) -> None:
    """Print `count` records."""
    consumer = Consumer(
        topic,
        topic2,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=True,
        auto_commit_interval_ms=1000,
        session_timeout_ms=30_000,
    )
    seen = 0
    async with consumer:
        async for record in consumer:
            print(f"offset = {record.offset}, key = {record.key!r}, value = {record.value!r}", flush=True)
            seen += 1
            if seen == count:
                break


if __name__ == "__main__":
    arguments = parser(__doc__)
    arguments.add_argument("--topic2", default="bar")
    run(main(**vars(arguments.parse_args())))
