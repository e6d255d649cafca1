"""ApiVersions, and malformed requests."""

import struct
from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import heartbeat, when
from tests.interop.behaviour.language import Difference, Family, Hear, Raw, Scenario, ask, spread


def _head(key: int, version: int, client_id: bytes = b"\x00\x04test") -> bytes:
    return struct.pack(">hhi", key, version, 7) + client_id


def _versions(version: int) -> Scenario:
    about = when(version >= 3, client_software_name="test", client_software_version="1.0")
    return Scenario(f"ApiVersions v{version}", (ask(ApiKey.API_VERSIONS, version, **about),))


def _software(title: str, name: str, version: str) -> Scenario:
    asked = ask(ApiKey.API_VERSIONS, 3, client_software_name=name, client_software_version=version)
    return Scenario(f"ApiVersions v3: {title}", (asked,))


#: After a request that closes its connection, the broker serves the next connection.
_NEXT: Final = ask(ApiKey.HEARTBEAT, 0, on="next", group_id="$group", generation_id=1, member_id="nobody")


def _closing(title: str, frame: bytes, size: int | None = None) -> Scenario:
    return Scenario(title, (Raw(frame, size=size), _NEXT))


#: The brokers that clients of ApiVersions 5 expect (KIP-1242).
_EXPECTED: Final[dict[str, dict[str, Any]]] = {
    "this broker": {"cluster_id": "$cluster", "node_id": 1},
    "this cluster": {"cluster_id": "$cluster"},
    "another cluster": {"cluster_id": "another", "node_id": 1},
    "another broker": {"cluster_id": "$cluster", "node_id": 7},
    "another broker of another cluster": {"cluster_id": "another", "node_id": 7},
    "any cluster, another broker": {"node_id": 7},
    "a cluster without a name": {"cluster_id": ""},
    "this broker, and a name that is none": {"cluster_id": "another", "client_software_name": "-"},
}

SCENARIOS: Final = (
    *(_versions(version) for version in (0, 1, 2, 3, 4, 5)),
    Scenario("ApiVersions of an unknown version", (Raw(_head(18, 99) + b"\x00\x02a\x02b\x00"),)),
    Scenario("ApiVersions of the version after the newest", (Raw(_head(18, 6) + b"\x00\x02a\x02b\x00"),)),
    Scenario("ApiVersions of a negative version", (Raw(_head(18, -1)),)),
    *(
        Scenario(
            f"ApiVersions v5: for {what}",
            (
                ask(ApiKey.METADATA, 12, topics=[], save={"cluster": "cluster_id"}, quiet=True),
                ask(ApiKey.API_VERSIONS, 5, **{"client_software_name": "test", "client_software_version": "1"} | whom),
            ),
        )
        for what, whom in _EXPECTED.items()
    ),
    _software("no name", "", "1"),
    _software("no version", "a", ""),
    _software("a space in the name", "my client", "1"),
    _software("a name that begins with a dash", "-a", "1"),
    _software("a name that ends with a dot", "a.", "1"),
    _software("a name with dots and dashes inside", "a-b.c", "1.2-rc.3"),
    Scenario(
        "ApiVersions again, after other requests",
        (heartbeat("nobody"), ask(ApiKey.API_VERSIONS, 0, quiet=True), heartbeat("nobody")),
    ),
    _closing("an API that does not exist", _head(999, 0)),
    _closing("an API with a negative key", _head(-5, 0)),
    _closing("Metadata of an unknown version", _head(3, 99)),
    _closing("Metadata of a negative version", _head(3, -1)),
    _closing("Fetch v3, which Kafka 4 no longer has", _head(1, 3)),
    _closing("JoinGroup of the version after the newest", _head(11, 10)),
    _closing("an empty frame", b""),
    _closing("a header that is cut off", struct.pack(">hh", 3, 0)),
    _closing("a body that is cut off", _head(12, 0) + b"\x00\x05gro"),
    _closing("a client id longer than its frame", struct.pack(">hhih", 3, 0, 7, 500) + b"x"),
    _closing("an array longer than its frame", _head(3, 0) + struct.pack(">i", 2**30)),
    _closing("a frame of negative size", b"", size=-1),
    _closing("a frame over socket.request.max.bytes", b"", size=104_857_601),
    Scenario(
        "a body with trailing bytes",
        (Raw(_head(12, 0) + struct.pack(">h1sih1s", 1, b"g", 1, 1, b"m") + b"more"),),
    ),
    Scenario("a null client id", (heartbeat("nobody", client_id=None),)),
    Scenario("an empty client id", (heartbeat("nobody", client_id=""),)),
    *(
        Scenario(
            f"SaslHandshake v{version} without SASL",
            (ask(ApiKey.SASL_HANDSHAKE, version, mechanism="PLAIN"),),
        )
        for version in spread(ApiKey.SASL_HANDSHAKE)
    ),
    *(
        Scenario(
            f"SaslAuthenticate v{version} without SASL",
            (ask(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=b"\0user\0password"),),
        )
        for version in spread(ApiKey.SASL_AUTHENTICATE)
    ),
    Scenario(
        "pipelined requests are answered in order",
        (
            heartbeat("one", version=0, later=True),
            ask(ApiKey.FIND_COORDINATOR, 0, key="$group", later=True),
            heartbeat("two", version=4, later=True),
            Hear(),
            Hear(),
            Hear(),
        ),
    ),
)

#: Kafka's features that Barnabas lacks.
_LACKING: Final = ("eligible.leader.replicas", "kraft", "metadata", "streams")

#: Scenarios that list the APIs, too.
_ALIKE: Final = ("ApiVersions v3: a name with dots and dashes inside", "ApiVersions v5: for this broker")

DIFFERENCES: Final = (
    Difference(
        "Streams groups are not served",
        "Classic groups, consumer groups and share groups are served. ApiVersions lists the APIs that exist.",
        tuple(("ApiVersions v[012345]", f"*.api_keys.{key}") for key in (88, 89, 93)),
    ),
    Difference(
        "Delegation tokens and changes of the quorum are not served",
        "The quorum of a cluster is etcd's, which has its own tools.",
        tuple(("ApiVersions v[012345]", f"*.api_keys.{key}") for key in (38, 39, 40, 41, 64, 80, 81, 94)),
    ),
    Difference(
        "Older versions of some APIs than Kafka 4 has",
        "Clients from before 2017 can still connect. Newer versions are answered as by Kafka.",
        tuple(
            ("ApiVersions v[012345]", f"*.api_keys.{key}.min_version")
            for key in (2, 8, 9, 19, 20, 23, 29, 30, 31, 32, 34, 35)
        ),
    ),
    Difference(
        "ApiVersions lists three features: group.version, share.version and transaction.version",
        "The others would switch on functions that Barnabas lacks, or describe Kafka's quorum of controllers.",
        (
            *(("ApiVersions v[345]", f"*_features.{name}.version") for name in _LACKING),
            *((scenario, f"*_features.{name}.version") for scenario in _ALIKE for name in _LACKING),
            ("ApiVersions v3", "*.supported_features"),
            ("ApiVersions v3: a name with dots and dashes inside", "*.supported_features"),
            *((scenario, "*.api_keys.*") for scenario in _ALIKE),
        ),
    ),
    Difference(
        "A request with bytes after its end closes the connection",
        "Kafka ignores them. Trailing bytes mean that the client and the broker disagree about the schema. Metadata is "
        "the exception, because a widely used client sends them there.",
        (("a body with trailing bytes", "0 raw bytes"),),
    ),
)

FAMILY: Final = Family("Handshake and framing", SCENARIOS, DIFFERENCES)
