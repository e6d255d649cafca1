"""TLS handshakes at full speed, or beside heartbeats; prints its measurements. SERVER is the process id of the server.

    python -m tests.bench.loads.handshakes rate ADDRESS SERVER TRUST CERTIFICATE SECONDS
    python -m tests.bench.loads.handshakes beside HEARTBEATS SECONDS [ADDRESS TRUST CERTIFICATE RATE BURST]

TRUST has the authority of the server's certificate; CERTIFICATE is that of the client with its key, "" for none.
`rate`: threads connect to ADDRESS, each time with a full handshake and one ApiVersions request. `beside`: heartbeats of
a group are sent to HEARTBEATS in plain text, one every 5 ms, and their latency counts from when each is due. Meanwhile
another process connects to ADDRESS with TLS, RATE times a second, BURST connections at once. It is nice, so that the
heartbeats need not wait for it.
"""

import asyncio
import json
import multiprocessing
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Final

from barnabas_protocol.codec import encode_request
from barnabas_protocol.messages.api_versions import ApiVersionsRequest
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.bench.loads.groups import cpu
from tests.bench.wire import CLIENT, Link, join_alone, named

#: Seconds between two heartbeats.
PACE: Final = 0.005
#: Seconds that are not counted.
WARM_UP: Final = 0.5
THREADS: Final = 8
#: Handshakes that are not counted: a JVM compiles what they use.
FIRST: Final = 300
LIMIT: Final = 30.0
ASK: Final = encode_request(ApiVersionsRequest(), 0, 1, CLIENT)


def context(trust: str, certificate: str) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=trust)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    if certificate:
        made.load_cert_chain(certificate)
    return made


def rate(address: str, server: int, trust: str, certificate: str, seconds: float) -> dict[str, float]:
    """Handshakes a second, and the processor time of the server for each."""
    host, _, port = address.rpartition(":")
    made, stop = context(trust, certificate), threading.Event()
    done: list[float] = []
    failures: list[OSError] = []

    def shake() -> None:
        try:
            while not stop.is_set():
                with (
                    socket.create_connection((host, int(port)), LIMIT) as plain,
                    made.wrap_socket(plain, server_hostname=host) as link,
                ):
                    link.sendall(ASK)
                    if not link.recv(4096):
                        raise EOFError("the server has closed the connection")
                done.append(time.perf_counter())
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=shake) for _ in range(THREADS)]
    for each in threads:
        each.start()
    limit = time.perf_counter() + LIMIT
    while len(done) < FIRST and not failures and time.perf_counter() < limit:
        time.sleep(0.01)
    before, used, began = len(done), cpu(server), time.perf_counter()
    time.sleep(seconds)
    count, used, passed = len(done) - before, cpu(server) - used, time.perf_counter() - began
    stop.set()
    for each in threads:
        each.join()
    if failures or not count:
        raise RuntimeError(f"{count} handshakes in {passed:.1f} s, {len(failures)} failures: {failures[:1]}")
    return {"rate": count / passed, "cpu": used / count}


def connect(
    pipe: Connection, address: str, trust: str, certificate: str, rate: float, burst: int, seconds: float
) -> None:
    """Connect and disconnect for some seconds, `burst` connections at once, `rate` a second; send how many it were."""
    host, _, port = address.rpartition(":")
    made = context(trust, certificate)
    os.nice(5)

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=made, family=socket.AF_INET)
        writer.write(ASK)
        await reader.readexactly(4)
        writer.transport.abort()

    async def run() -> float:
        begin = time.perf_counter()
        tasks: list[asyncio.Task[None]] = []
        for turn in range(round(seconds * rate / burst)):
            # Each begins when it is due, whether those before are done or not.
            await asyncio.sleep(max(0.0, begin + turn * burst / rate - time.perf_counter()))
            tasks += [asyncio.create_task(one()) for _ in range(burst)]
        await asyncio.gather(*tasks)
        return len(tasks) / max(time.perf_counter() - begin, seconds)

    pipe.send(0)
    pipe.send(asyncio.run(run()))


def beside(address: str, seconds: float, load: Sequence[str]) -> dict[str, float]:
    """The latency of heartbeats in seconds, and how many handshakes were made a second."""
    made = 0.0
    reader, writer = multiprocessing.Pipe(duplex=False)
    other = None
    if load:
        tls, trust, certificate, wanted, burst = load
        arguments = (writer, tls, trust, certificate, float(wanted), int(burst), WARM_UP + seconds)
        other = multiprocessing.get_context("spawn").Process(target=connect, args=arguments)
    with Link(address) as link:
        group = named()
        member_id, generation = join_alone(link, group)
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)
        if other is not None:
            other.start()
            if not reader.poll(LIMIT):
                raise RuntimeError("the other process does not begin")
            reader.recv()
        latencies = []
        begin = time.perf_counter() + WARM_UP
        for turn in range(round(seconds / PACE)):
            due = begin + turn * PACE
            time.sleep(max(0.0, due - time.perf_counter()))
            answer = link.ask(request, 4, HeartbeatResponse)
            latencies.append(time.perf_counter() - due)
            if answer.error_code:
                raise RuntimeError(f"a heartbeat has failed: error {answer.error_code}")
    if other is not None:
        if not reader.poll(LIMIT):
            raise RuntimeError("the other process does not end")
        made = reader.recv()
        other.join(LIMIT)
    latencies.sort()
    p50, p99 = (latencies[int(len(latencies) * part)] for part in (0.5, 0.99))
    return {"p50": p50, "p99": p99, "max": latencies[-1], "rate": made}


def main(what: str, address: str, *rest: str) -> None:
    if what == "rate":
        server, trust, certificate, seconds = rest
        print(json.dumps(rate(address, int(server), trust, certificate, float(seconds))))
    else:
        print(json.dumps(beside(address, float(rest[0]), rest[1:])))


if __name__ == "__main__":
    main(*sys.argv[1:])
