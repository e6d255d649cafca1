"""Two ways from a file to a socket: through bytes objects, as in the broker, and with sendfile."""

import asyncio
import os
import socket
import time
from pathlib import Path
from typing import Final

import uvloop

from barnabas_broker.server.connection import WRITE_MARK

#: Bytes of one fetch, and of its response header.
FETCH: Final = 2**20
HEAD: Final = bytes(64)


def feed(server: socket.socket, path: Path, size: int, rounds: int) -> dict[str, list[float]]:
    """Return bytes per second and this process's seconds per GB, of both in turn: two rounds of the receiver each."""
    measured: dict[str, list[float]] = {name: [] for name in ("log", "raw", "log cpu", "raw cpu")}
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    turns = path.stat().st_size // FETCH
    for _ in range(rounds):
        for name, send in (("log", _through_bytes), ("raw", _past_python)):
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                started, cpu = time.perf_counter(), time.process_time()
                send(connection, handle, size // FETCH, turns)
                seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
            measured[name].append(size / seconds)
            measured[f"{name} cpu"].append(cpu / size * 1e9)
    os.close(handle)
    return measured


def _through_bytes(connection: socket.socket, handle: int, count: int, turns: int) -> None:
    uvloop.run(_stream(connection, handle, count, turns))


async def _stream(connection: socket.socket, handle: int, count: int, turns: int) -> None:
    connection.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=connection)
    writer.transport.set_write_buffer_limits(high=WRITE_MARK)
    for n in range(count):
        writer.writelines([HEAD, os.pread(handle, FETCH, n % turns * FETCH)])
        await writer.drain()
    await reader.readexactly(1)
    writer.close()


def _past_python(connection: socket.socket, handle: int, count: int, turns: int) -> None:
    # Blocking and without an event loop: this is the upper limit of sendfile.
    for n in range(count):
        connection.sendall(HEAD, socket.MSG_MORE)
        at, end = n % turns * FETCH, (n % turns + 1) * FETCH
        while at < end:
            at += os.sendfile(connection.fileno(), handle, at, end - at)
    if not connection.recv(1):
        raise RuntimeError("the other end has not got everything")


def drain(port: int, size: int, rounds: int) -> None:
    """Receive `size` bytes in each round and acknowledge the end of the round."""
    buffer = bytearray(FETCH)
    expected = size // FETCH * (FETCH + len(HEAD))
    for _ in range(2 * rounds):
        with socket.create_connection(("127.0.0.1", port)) as connection:
            got = 0
            while got < expected and (part := connection.recv_into(buffer)):
                got += part
            connection.sendall(b"!" if got == expected else b"")
