"""What TLS, logins and ACLs cost: throughput, small requests, handshakes."""

import asyncio
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trustme import KeyType

from barnabas_broker.config.keys import STANDARD_AUTHORIZER
from barnabas_client import (
    AclBinding,
    AclOperation,
    AclPatternType,
    AclResourceType,
    Admin,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.bench.families.groups import milliseconds, ratio
from tests.bench.machine import cores, pinned
from tests.bench.results import Chart, Table, count, megabytes
from tests.bench.targets import SHORT_LIVED, Target, load
from tests.bench.wire import PREFIX, create_topic, delete_topic, named
from tests.certificates import Authority
from tests.interop.server import Server, free_port

TITLE: Final = "Security"
#: ACLs of the secured server, and the user that logs in there.
ACLS: Final = 1_000
USER, PASSWORD = "bench", "bench-secret"
#: The keys of certificates: those of most authorities, and the shorter ones.
KEYS: Final[Mapping[str, KeyType]] = {"RSA 2048": KeyType.RSA, "ECDSA P-256": KeyType.ECDSA}
#: The handshakes that are measured: the listener, the key of its certificate, and whether clients show one, too.
HANDSHAKES: Final = {
    **{name: (kind.name, kind, False) for name, kind in KEYS.items()},
    "RSA 2048, mutual": ("MUTUAL", KeyType.RSA, True),
}
#: Handshakes a second beside heartbeats, and how many of them begin together.
RATE: Final = 200
BURSTS: Final = (1, 50)
#: Records of a measurement of the throughput, their size in bytes, and partitions.
RECORDS, SIZE, PARTITIONS = 300_000, 1_000, 6
KINDS: Final = ("Heartbeat v4", "Fetch v11, empty", "Produce v9")
DEPTHS: Final = (1, 16)
PERCENTILES: Final = ("p50", "p99")
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
#: Requests are sent to both servers in turn, so often, for so many seconds.
TURNS, TURN = 3, 0.5
ABOUT: Final = (
    "Certificates are in PEM, from the same authority for all servers; clients check them. Throughput: 1 KB records in "
    "six partitions with acks=all and confluent-kafka, as in the family of that name, on all cores together with the "
    "server, over TLS 1.3 with a key of RSA 2048 and without TLS in turn. All else: the server has one core, the load "
    f"the other. Small requests: to a server without security, and, {TURNS} times in turn, to one of the same program "
    f"with SASL and an authorizer with {ACLS:,} ACLs, after a login with SCRAM-SHA-256; the ratio is that of each "
    "turn. Handshakes: full ones of TLS 1.3, each on a new connection, with one ApiVersions request after it, by eight "
    "threads; processor time is that of the server for all of it; mutual: the client has a certificate, too, with a "
    "key of RSA 2048. Heartbeats: one is due every 5 ms on a connection in plain text, and its latency counts from "
    f"then, while another process begins {RATE} TLS connections a second to the same server, one at a time or 50 at "
    "once; and to another server of the same program on the same core, which "
    "shows what two busy programs cost on this machine."
)
ROUNDS: Final = 2


def _throughput(what: str, tls: bool) -> str:
    return f"{what} 1 KB, {'TLS' if tls else 'plain text'}"


def _requests(kind: str, depth: int, secured: bool) -> str:
    return f"{kind}, depth {depth}, {f'SASL and {ACLS:,} ACLs' if secured else 'no security'}"


def _quiet(percentile: str) -> str:
    return f"heartbeats without handshakes, {percentile}"


def _beside(how: str, burst: int, percentile: str) -> str:
    together = "one at a time" if burst == 1 else f"{burst} at once"
    return f"heartbeats beside {RATE} handshakes/s {together}, {how}, {percentile}"


CHARTS: Final = [
    Chart(
        "throughput",
        {
            f"{what}\n{'TLS' if tls else 'plain'}": _throughput(what, tls)
            for what in ("produce", "consume")
            for tls in (False, True)
        },
        "MB/s",
        1e-6,
    ),
    *(
        Chart(
            f"{depth} under way, SASL and {ACLS:,} ACLs",
            {kind.replace(" ", "\n", 1).partition(",")[0]: _requests(kind, depth, True) for kind in KINDS},
            "thousand/s",
            1e-3,
        )
        for depth in DEPTHS
    ),
    Chart("TLS handshakes", {how.replace(", ", "\n"): f"handshakes/s, {how}" for how in HANDSHAKES}, "handshakes/s"),
    *(
        Chart(
            f"heartbeats beside {RATE} handshakes/s, {percentile}",
            {
                f"{how.replace(', ', chr(10))}\n{'one at a time' if burst == 1 else f'{burst} at once'}": _beside(
                    how, burst, percentile
                )
                for how in HANDSHAKES
                for burst in BURSTS
            },
            "ms",
            1e3,
            less_is_better=True,
        )
        for percentile in PERCENTILES
    ),
]


@dataclass(frozen=True)
class Secured:
    """A server with several listeners; secured or not.

    Attributes:
        server: it.
        plain: the address for plain text without a login.
        login: the address for logins.
        tls: the address for each of the handshakes.
    """

    server: Server
    plain: str
    login: str
    tls: Mapping[str, str]


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    table = Table([target.name for target in targets])
    served = [target for target in targets if target.server is not None]
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        with ExitStack() as stack:
            open_ones = {target: stack.enter_context(_running(target, certificates)) for target in served}
            for _ in range(rounds):
                for target, one in open_ones.items():
                    _measure_throughput(table, target.name, one, certificates, RECORDS // (10 if quick else 1))
        with ExitStack() as stack:
            with pinned(cores()[0]):
                pairs = {
                    target: [
                        stack.enter_context(_running(target, certificates, secured=secured))
                        for secured in (False, True)
                    ]
                    for target in served
                }
            for _ in range(rounds):
                for target, (plain, secured) in pairs.items():
                    _measure_requests(table, target.name, plain, secured, quick)
                for target, (one, other) in pairs.items():
                    _measure_handshakes(table, target.name, one, other, certificates, quick)
    return table


class Certificates:
    """The certificates of the servers, one for each of the keys, of a client, and the file with the authority's.

    Args:
        folder: where the files are written.
    """

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder)
        self.trust = str(authority.trust)
        self.files = {kind: str(authority.issue(kind.name, key_type=kind)) for kind in KEYS.values()}
        self.mine = str(authority.issue("mine", common_name="client", key_type=KeyType.RSA))
        self.librdkafka = str(folder / "client.json")
        Path(self.librdkafka).write_text(json.dumps({"security.protocol": "ssl", "ssl.ca.location": self.trust}))


@contextmanager
def _running(target: Target, certificates: Certificates, *, secured: bool = False) -> Iterator[Secured]:
    """Start a server. A `secured` one has an authorizer, the user and ACLs; clients in plain text may do everything."""
    assert target.server is not None
    ports = {name: free_port() for name in ("PLAINTEXT", "LOGIN", *(name for name, _, _ in HANDSHAKES.values()))}
    tls = {how: f"localhost:{ports[name]}" for how, (name, _, _) in HANDSHAKES.items()}
    settings: dict[str, str | int] = {
        **SHORT_LIVED,
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(f"{name}://localhost:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name}:SSL" for name, _, _ in HANDSHAKES.values()),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.login.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    }
    for name, kind, mutual in HANDSHAKES.values():
        prefix = f"listener.name.{name.lower()}.ssl"
        settings |= {f"{prefix}.keystore.type": "PEM", f"{prefix}.keystore.location": certificates.files[kind]}
        if mutual:
            settings |= {f"{prefix}.truststore.type": "PEM", f"{prefix}.truststore.location": certificates.trust}
            settings[f"{prefix}.client.auth"] = "required"
    if secured:
        settings |= {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with target.server(settings, port=ports["PLAINTEXT"]) as server:
        plain = server.bootstrap_servers
        if secured:
            asyncio.run(_grant(plain))
        yield Secured(server, plain, f"127.0.0.1:{ports['LOGIN']}", tls)


async def _grant(address: str) -> None:
    """Make the user and the ACLs: ten of them are the user's, the others for other users, topics and groups."""
    kinds = [
        (AclResourceType.TOPIC, AclPatternType.PREFIXED, AclOperation.READ),
        (AclResourceType.TOPIC, AclPatternType.PREFIXED, AclOperation.WRITE),
        (AclResourceType.GROUP, AclPatternType.PREFIXED, AclOperation.READ),
        (AclResourceType.TOPIC, AclPatternType.LITERAL, AclOperation.READ),
        (AclResourceType.TOPIC, AclPatternType.LITERAL, AclOperation.WRITE),
    ]

    def acls(user: str, prefix: str, number: int) -> list[AclBinding]:
        return [
            AclBinding(f"User:{user}", operation, resource, prefix if n < 3 else f"{prefix}{number}-{n}", pattern)
            for n, (resource, pattern, operation) in enumerate(kinds)
        ]

    wanted = [
        *acls(USER, PREFIX, 0),
        *(
            acl
            for number in range(1, ACLS // len(kinds))
            for acl in acls(f"user-{number}", f"{PREFIX}{number}-", number)
        ),
    ]
    assert len(wanted) == ACLS
    async with Admin(bootstrap_servers=address) as admin:
        user = UserScramCredentialUpsertion(USER, ScramMechanism.SCRAM_SHA_256, PASSWORD)
        await admin.alter_user_scram_credentials([user])
        await admin.create_acls(wanted)


def _measure_throughput(table: Table, name: str, one: Secured, certificates: Certificates, records: int) -> None:
    topic = named()
    create_topic(one.plain, topic, PARTITIONS)
    for tls in (False, True):
        where = (one.tls[next(iter(KEYS))], certificates.librdkafka) if tls else (one.plain, "")
        done = load("produce", where[0], topic, records, SIZE, PARTITIONS, "all", *filter(None, where[1:]))
        table.add(_throughput("produce", tls), name, done["count"] * SIZE / done["seconds"], megabytes)
    for tls in (False, True):
        where = (one.tls[next(iter(KEYS))], certificates.librdkafka) if tls else (one.plain, "")
        done = load("consume", where[0], topic, records, *filter(None, where[1:]))
        table.add(_throughput("consume", tls), name, done["count"] * SIZE / done["seconds"], megabytes)
    delete_topic(one.plain, topic)


def _measure_requests(table: Table, name: str, plain: Secured, secured: Secured, quick: bool) -> None:
    for kind in KINDS[:1] if quick else KINDS:
        with pinned(cores()[1]):
            where = (plain.plain, secured.plain, secured.login)
            found = load("secured", *where, USER, PASSWORD, kind, 1 if quick else TURNS, TURN, *DEPTHS)
        for depth, turns in found.items():
            rates = [statistics.mean(turn[at] for turn in turns) for at in (0, 1)]
            for at, rate in enumerate(rates):
                table.add(_requests(kind, int(depth), bool(at)), name, rate, count)
            share = statistics.median(mine / other for other, mine in turns)
            table.add(f"{kind}, depth {depth}, ratio", name, share, ratio)


def _measure_handshakes(
    table: Table, name: str, one: Secured, other: Secured, certificates: Certificates, quick: bool
) -> None:
    seconds = 0.5 if quick else 3.0
    files = {
        how: (certificates.trust, certificates.mine if mutual else "") for how, (_, _, mutual) in HANDSHAKES.items()
    }
    for how, address in one.tls.items():
        with pinned(cores()[1]):
            done = load("handshakes", "rate", address, one.server.pid, *files[how], seconds)
        table.add(f"handshakes/s, {how}", name, done["rate"], count)
        table.add(f"processor time of a handshake, {how}", name, done["cpu"], milliseconds)
    beside = [
        (_beside(how, burst, "{}"), address, *files[how], burst) for how, address in one.tls.items() for burst in BURSTS
    ]
    how, address = next(iter(other.tls.items()))
    beside.insert(0, (f"{_beside(how, BURSTS[-1], 'another server')}, {{}}", address, *files[how], BURSTS[-1]))
    with pinned(cores()[1]):
        done = load("handshakes", "beside", one.plain, seconds)
        for percentile in PERCENTILES:
            table.add(_quiet(percentile), name, done[percentile], milliseconds)
        for row, address, trust, mine, burst in beside[:2] if quick else beside:
            done = load("handshakes", "beside", one.plain, seconds, address, trust, mine, RATE, burst)
            for percentile in PERCENTILES:
                table.add(row.format(percentile), name, done[percentile], milliseconds)
            if done["rate"] < RATE * 0.9:
                table.add(row.format("handshakes/s made"), name, done["rate"], count)
