"""TLS handshakes beside heartbeats: does a listener with TLS keep the clients of others waiting?

    python -m tests.bench.handshakes --rate 200 --seconds 20

A process of its own connects to the listener with TLS `rate` times a second, each time with a full handshake. Meanwhile
heartbeats of a group go over a connection in plain text, one every 5 ms. Their latency is measured without handshakes;
with handshakes on another broker, which shows what two busy programs cost on this machine; and with handshakes on the
same broker.
"""

import argparse
import asyncio
import multiprocessing
import socket
import ssl
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.certificates import Authority
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.server import free_port
from tests.wire import Wire

#: Seconds between two heartbeats.
PACE: Final = 0.005


def shake(port: int, trust: str, certificate: str, rate: float, burst: int, stop: float) -> None:
    """Connect and disconnect until `stop`, `burst` connections at once, `rate` a second."""

    async def one(context: ssl.SSLContext) -> None:
        _, writer = await asyncio.open_connection("localhost", port, ssl=context, family=socket.AF_INET)
        writer.transport.abort()

    async def run() -> None:
        count, begin = 0, time.time()
        context = ssl.create_default_context(cafile=trust)
        context.load_cert_chain(certificate)
        while time.time() < stop:
            await asyncio.gather(*(one(context) for _ in range(burst)))
            count += burst
            await asyncio.sleep(max(0.0, begin + count / rate - time.time()))
        print(f"    {count / (time.time() - begin):.0f} handshakes/s, {burst} at once", flush=True)

    asyncio.run(run())


async def heartbeats(port: int, seconds: float) -> list[float]:
    """The latencies of heartbeats, in ms, ascending."""
    found = []
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id=None)
    async with await Wire.connect(port) as wire:
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            await wire.ask(request, 4, HeartbeatResponse)
            found.append((time.perf_counter() - begin) * 1000)
            await asyncio.sleep(PACE)
    return sorted(found)


def show(name: str, latencies: Sequence[float]) -> None:
    p50, p99 = (latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
    print(f"{name:24} {len(latencies)} heartbeats: p50 {p50:.2f} ms, p99 {p99:.2f} ms, max {latencies[-1]:.2f} ms")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure TLS handshakes beside heartbeats.")
    parser.add_argument("--rate", type=float, default=200, help="handshakes a second (default: %(default)s)")
    parser.add_argument("--burst", type=int, default=1, help="handshakes at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=20, help="of each part (default: %(default)s)")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        client = authority.issue("client", "c@example.com", common_name="client")
        keys = {
            "ssl.keystore.location": str(authority.issue("broker")),
            "ssl.truststore.location": str(authority.trust),
            "ssl.client.auth": "required",
        }
        ports = [(free_port(), free_port()) for _ in range(2)]
        settings = [{"listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{tls}", **keys} for port, tls in ports]
        with BarnabasBroker(settings[0], port=ports[0][0]), BarnabasBroker(settings[1], port=ports[1][0]):
            show("no handshakes", asyncio.run(heartbeats(ports[0][0], options.seconds)))
            for name, (_, tls) in (("on another broker", ports[1]), ("on the same broker", ports[0])):
                stop = time.time() + options.seconds
                arguments = (tls, str(authority.trust), str(client), options.rate, options.burst, stop)
                other = multiprocessing.get_context("spawn").Process(target=shake, args=arguments)
                other.start()
                show(name, asyncio.run(heartbeats(ports[0][0], options.seconds)))
                other.join()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
