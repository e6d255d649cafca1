"""Small requests per second to two servers in turn, one without security and one with a login; prints all rates.

    python -m tests.bench.loads.secured PLAIN SECURED LOGIN USER PASSWORD KIND TURNS SECONDS DEPTH [DEPTH ...]

PLAIN and SECURED are the addresses where the requests are prepared, LOGIN is where they are sent after a login with
SCRAM-SHA-256. The two servers take turns, so that what else happens on
the machine happens to both.
"""

import asyncio
import json
import sys

import uvloop

from tests.bench.loads.requests import KINDS, shoot
from tests.bench.wire import Link


def main(plain: str, secured: str, login: str, user: str, password: str, *rest: str) -> None:
    kind, turns, seconds, *depths = rest
    make, version = KINDS[kind]
    shots = [make(address, version) for address in (plain, secured)]
    rates: dict[str, list[tuple[float, float]]] = {depth: [] for depth in depths}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for _ in range(int(turns)):
            for depth, found in rates.items():
                pair = []
                for address, shot in zip((plain, login), shots, strict=True):
                    link = Link(address)
                    if address == login:
                        link.log_in(user, password)
                    pair.append(runner.run(shoot(link.detach(), shot, int(depth), float(seconds))))
                found.append((pair[0], pair[1]))
    print(json.dumps(rates))


if __name__ == "__main__":
    main(*sys.argv[1:])
