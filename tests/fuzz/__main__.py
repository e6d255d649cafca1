"""Attack a broker: ``python -m tests.fuzz --requests 1000000``. It prints the seed, the longest hold and the memory.

Ctrl-C ends it early, with what was found until then.
"""

import argparse
import asyncio
import logging
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping

import uvloop

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.gc_tuning import bounded
from barnabas_broker.http.process import resident_bytes
from tests.fuzz.attack import AUTHORIZER, GARBAGE, TOPICS, Attack, stored

#: Seconds that a request may hold the event loop.
HELD = 0.05


async def _attack(requests: int, seed: int, authorizer: Mapping[str, str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        broker = await BrokerServer.start(Config(BROKER_KEYS, {"log.dirs": folder, **authorizer}), port=0)
        started = time.monotonic()
        memory: list[int] = []

        def watch(sent: int) -> None:
            memory.append((resident_bytes() or 0) >> 20)
            if sent % 20_000 == 0:
                rate = sent / (time.monotonic() - started)
                print(f"{sent:,} requests, {rate:,.0f}/s, {memory[-1]} MiB", file=sys.stderr, flush=True)

        with bounded():
            attack = Attack(broker, seed, watch)
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, attack.stop)
            found = await attack.run(requests)
        batches = {topic: stored(broker, topic) for topic in TOPICS}
        await broker.stop()
    for hold in found.holds:
        print(hold)
    for topic, (count, unreadable) in batches.items():
        print(f"{topic}: {count:,} batches stored, {len(unreadable):,} of them unreadable")
    longest, broken = found.holds[-1], any(unreadable for _, unreadable in batches.values())
    print(
        f"seed {seed}: {found.requests:,} requests, {found.closed:,} closed the connection, {found.waited:,} waited; "
        f"{found.garbage:,} objects in reference cycles; "
        f"memory {memory[len(memory) // 10]} MiB after a tenth, {memory[-1]} MiB at the end; "
        f"longest hold {longest.seconds * 1000:.0f} ms"
    )
    return 1 if longest.seconds > HELD or found.garbage > GARBAGE * found.requests or broken else 0


def main() -> int:
    """Run the attack of the command line; 1 if it has found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000, help="number of requests")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the requests")
    parser.add_argument("--authorizer", action="store_true", help="decide for each request what its client may do")
    arguments = parser.parse_args()
    logging.getLogger("barnabas_broker").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_attack(arguments.requests, arguments.seed, AUTHORIZER if arguments.authorizer else {}))


if __name__ == "__main__":
    sys.exit(main())
