"""Produces records of 100 bytes at a fixed rate to all partitions.

python -m tests.bench.loads.spark_feed ADDRESS TOPIC RATE SECONDS
"""

import asyncio
import os
import sys
import time

from barnabas_client import Producer


async def feed(address: str, topic: str, rate: int, seconds: float) -> None:
    values = [os.urandom(100) for _ in range(1_000)]
    async with Producer(bootstrap_servers=address, linger_ms=5) as producer:
        partitions = len(await producer.partitions_for(topic))
        began = time.perf_counter()
        for number in range(round(rate * seconds)):
            ahead = began + number / rate - time.perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            await producer.send(topic, values[number % len(values)], partition=number % partitions)
        await producer.flush()


if __name__ == "__main__":
    asyncio.run(feed(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
