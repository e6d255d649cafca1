"""The etcd client: several endpoints, TLS, users, and etcd members that are killed or frozen."""

import asyncio
import contextlib
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import trustme
from aetcd import rpc

from barnabas_broker.cluster.etcd import EtcdClient, EtcdConfig, parse_url
from barnabas_broker.cluster.kv import KeyChanges, KeyValueStore, KvError, KvUnavailable, Put, follow
from barnabas_broker.local_etcd import free_port
from tests.cluster.harness import PATIENCE, Etcd, need_etcd
from tests.interop.process import end, spawn
from tests.link import Link

pytestmark = pytest.mark.cluster

T = TypeVar("T")


@contextlib.asynccontextmanager
async def connected(config: EtcdConfig) -> AsyncIterator[EtcdClient]:
    kv = EtcdClient(config)
    try:
        yield kv
    finally:
        await kv.close()


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a call; retry while etcd does not answer, because it may be slow or without a leader."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                return await call()
            except KvUnavailable:
                await asyncio.sleep(0.05)


async def put(kv: KeyValueStore, key: str, value: bytes) -> None:
    """Set a key."""
    await patiently(lambda: kv.txn([], [Put(key, value)]))


async def lease_is_renewed(kv: KeyValueStore) -> bool:
    """Return whether a lease can be granted and renewed."""
    lease = await patiently(lambda: kv.grant(60))
    return await patiently(lambda: kv.keep_alive(lease.lease_id, 1.0, 1.0)) > 0


class Members:
    """An etcd of three members."""

    def __init__(self, directory: Path) -> None:
        binary = need_etcd()
        self.ports = [free_port() for _ in range(3)]
        peers = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
        initial = ",".join(f"m{n}={peer}" for n, peer in enumerate(peers))
        self.processes: list[subprocess.Popen[str]] = []
        for number, (port, peer) in enumerate(zip(self.ports, peers, strict=True)):
            client = f"http://127.0.0.1:{port}"
            command = [
                *(str(binary), "--name", f"m{number}", "--data-dir", str(directory / str(number))),
                *("--listen-client-urls", client, "--advertise-client-urls", client, "--log-level", "error"),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", initial),
            ]
            self.processes.append(spawn(command, subprocess.DEVNULL, subprocess.DEVNULL, subprocess.DEVNULL))

    def close(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            end(process, 0)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    three = Members(tmp_path)
    yield three
    three.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_another_member_is_used_when_one_is_killed_or_frozen(members: Members, number: signal.Signals) -> None:
    async with connected(EtcdConfig([f"127.0.0.1:{port}" for port in members.ports])) as kv:
        await put(kv, "/a/0", b"0")
        seen: list[str] = []
        everything = asyncio.Event()

        async def watch() -> None:
            async for changes in follow(kv, "/a/", "/a0", 0):
                seen.extend(change.key for change in changes.changes)
                if "/a/2" in seen:
                    everything.set()

        watching = asyncio.create_task(watch())
        await put(kv, "/a/1", b"1")
        # The first endpoint is used until a call fails.
        members.processes[0].send_signal(number)
        await put(kv, "/a/2", b"2")
        async with asyncio.timeout(PATIENCE):
            await everything.wait()
        watching.cancel()
        assert list(dict.fromkeys(seen)) == ["/a/0", "/a/1", "/a/2"]
        assert await lease_is_renewed(kv)


async def test_a_connection_stays_while_answers_take_no_longer_than_a_session(etcd: Etcd) -> None:
    link = Link(etcd.port)
    await link.start()
    async with connected(EtcdConfig([f"127.0.0.1:{link.port}"], session=6.0)) as kv:
        await put(kv, "/a/0", b"0")
        link.seconds = 2.5
        for number in range(3):
            await put(kv, f"/a/{number}", b"1")
        await kv.txn([], [Put("/a/3", b"1")])
    await link.close()


async def test_requests_fail_without_a_majority(members: Members) -> None:
    async with connected(EtcdConfig([f"127.0.0.1:{port}" for port in members.ports])) as kv:
        await put(kv, "/a/0", b"0")
        for process in members.processes[1:]:
            end(process, 0)
        with pytest.raises(KvUnavailable):
            await kv.txn([], [Put("/a/1", b"1")])


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


async def test_mutual_tls(tmp_path: Path, authority: trustme.CA) -> None:
    ca, server, client = tmp_path / "ca.pem", tmp_path / "server.pem", tmp_path / "client.pem"
    authority.cert_pem.write_to_path(str(ca))
    for path, certificate in ((server, authority.issue_cert("127.0.0.1")), (client, authority.issue_cert("broker"))):
        certificate.private_key_and_cert_chain_pem.write_to_path(str(path))
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    etcd = Etcd(
        tmp_path,
        *("--listen-client-urls", url, "--advertise-client-urls", url),
        *("--cert-file", str(server), "--key-file", str(server)),
        *("--trusted-ca-file", str(ca), "--client-cert-auth"),
        port=port,
    )
    try:
        where = [f"127.0.0.1:{port}"]
        async with connected(EtcdConfig(where, str(ca), str(client), str(client))) as kv:
            await put(kv, "/a", b"1")
        for stranger in (EtcdConfig(where), EtcdConfig(where, str(ca))):
            async with connected(stranger) as kv:
                with pytest.raises(KvUnavailable):
                    await kv.range("/a")
    finally:
        etcd.kill()


async def test_a_user_with_a_password(tmp_path: Path) -> None:
    etcd = Etcd(tmp_path)
    where = [f"127.0.0.1:{etcd.port}"]
    try:
        async with connected(EtcdConfig(where)) as kv:
            await put(kv, "/a", b"1")
            for method, request in (
                ("UserAdd", rpc.AuthUserAddRequest(name="root", password="right")),
                ("RoleAdd", rpc.AuthRoleAddRequest(name="root")),
                ("UserGrantRole", rpc.AuthUserGrantRoleRequest(user="root", role="root")),
                ("AuthEnable", rpc.AuthEnableRequest()),
            ):
                await kv._call(rpc.AuthStub, method, request, PATIENCE)
            with pytest.raises(KvError, match="user name is empty"):
                await patiently(lambda: kv.range("/a"))
        async with connected(EtcdConfig(where, user="root", password="wrong")) as kv:
            with pytest.raises(KvError, match="authentication failed"):
                await patiently(lambda: kv.range("/a"))
        async with connected(EtcdConfig(where, user="root", password="right")) as kv:
            assert (await patiently(lambda: kv.range("/a"))).entries[0].value == b"1"
            await put(kv, "/b", b"2")
            # etcd forgets tokens at a restart; then the client logs in again.
            etcd.kill()
            etcd.start()
            await put(kv, "/c", b"3")
            assert await lease_is_renewed(kv)
            watching = follow(kv, "/", "0", 0)
            async with asyncio.timeout(PATIENCE):
                first = await anext(watching)
            assert isinstance(first, KeyChanges)
    finally:
        etcd.kill()


def test_valid_urls() -> None:
    assert parse_url("etcd://a:1,b:2/some/where/") == (["a:1", "b:2"], "/some/where/")
    assert parse_url("etcd://[::1]:2379") == (["[::1]:2379"], "/barnabas/")


@pytest.mark.parametrize(
    "url", ["", "a:1", "http://a:1", "etcd://", "etcd://a", "etcd://a:b", "etcd://a:1,", "etcd://a:0"]
)
def test_invalid_urls(url: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        parse_url(url)
