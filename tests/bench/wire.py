"""A blocking connection that uses our codecs, for the preparation of measurements."""

import socket
import struct
import time
import uuid
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TypeVar

from barnabas_protocol.codec import decode_response, encode_request
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas_protocol.records.builder import build_batch
from barnabas_protocol.sasl import exchange
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

CLIENT: Final = "bench"
#: What the names of groups and topics begin with.
PREFIX: Final = "bench-"
#: Retriable errors: a topic or a coordinator is not ready yet.
PASSING: Final = {3, 5, 6, 14, 15, 16}
LIMIT: Final = 60.0


class Link:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), LIMIT)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answers.close()
        self._socket.close()

    def ask(self, request: Request, version: int, answer: type[R]) -> R:
        self._socket.sendall(encode_request(request, version, 1, CLIENT))
        head = self._answers.read(4)
        if len(head) < 4:
            raise EOFError("the server has closed the connection")
        return decode_response(answer, version, self._answers.read(*struct.unpack(">i", head)))

    def log_in(self, user: str, password: str) -> None:
        """Log in with SCRAM-SHA-256."""
        messages = exchange("SCRAM-SHA-256", user, password, lambda: uuid.uuid4().hex)
        shaken = self.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1, SaslHandshakeResponse)
        error, message = shaken.error_code, next(messages)
        with suppress(StopIteration):
            while not error:
                answer = self.ask(SaslAuthenticateRequest(auth_bytes=message), 1, SaslAuthenticateResponse)
                error, message = answer.error_code, messages.send(bytes(answer.auth_bytes))
        if error:
            raise RuntimeError(f"the login has failed: error {error}")

    def detach(self) -> socket.socket:
        """The socket, which this object does not use or close any more."""
        self._answers.close()
        return self._socket


def named() -> str:
    """A name that no group and no topic has."""
    return f"{PREFIX}{uuid.uuid4().hex}"


def create_topic(address: str, name: str, partitions: int, patience: float = LIMIT) -> None:
    """Create a topic; wait until its leaders accept requests, each of the two waits for `patience` seconds at most."""
    with Link(address) as link:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        created = link.ask(CreateTopicsRequest(topics=[topic]), 2, CreateTopicsResponse)
        if created.topics[0].error_code:
            raise RuntimeError(f"{name}: error {created.topics[0].error_code}")
        wait_for_topic(link, name, partitions, patience)
        if len(link.ask(MetadataRequest(topics=[]), 4, MetadataResponse).brokers) == 1:
            ends(link, name, partitions, patience)


def ends(link: Link, topic: str, partitions: int, patience: float = LIMIT) -> list[int]:
    """Return the end offset of each partition. Retries, because Apache Kafka lists a leader a moment too early."""
    asked = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
    deadline = time.monotonic() + patience
    while True:
        (answer,) = link.ask(request, 5, ListOffsetsResponse).topics
        errors = {one.error_code for one in answer.partitions} - {0}
        if not errors:
            return [one.offset for one in sorted(answer.partitions, key=lambda one: one.partition_index)]
        if errors - PASSING or time.monotonic() > deadline:
            raise RuntimeError(f"{topic}: errors {errors}")
        time.sleep(0.02)


def produce_one(link: Link, topic: str) -> int:
    """Produce one record into partition 0 with acks=all; return the error code."""
    batch = build_batch([(None, b"value", (), int(time.time() * 1000))])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    produced = link.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 7, ProduceResponse)
    return produced.responses[0].partition_responses[0].error_code


def delete_topic(address: str, name: str) -> None:
    with Link(address) as link:
        deleted = link.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 1, DeleteTopicsResponse)
        if deleted.responses[0].error_code:
            raise RuntimeError(f"{name}: error {deleted.responses[0].error_code}")


def wait_for_topic(link: Link, name: str, partitions: int | None = None, patience: float = LIMIT) -> None:
    """Wait until a topic exists. The request creates it if auto-creation is on."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        (found,) = link.ask(request, 4, MetadataResponse).topics
        errors = [found.error_code, *(partition.error_code for partition in found.partitions)]
        if not any(errors) and (partitions is None or len(found.partitions) == partitions):
            return
        time.sleep(0.02)
    raise RuntimeError(f"{name} has no leaders after {patience:.0f} s")


def join_alone(link: Link, group: str) -> tuple[str, int]:
    """Create a group with one member; return the member id and generation."""
    deadline = time.monotonic() + LIMIT
    while link.ask(FindCoordinatorRequest(key=group), 0, FindCoordinatorResponse).error_code in PASSING:
        if time.monotonic() > deadline:
            raise RuntimeError("no coordinator")
        time.sleep(0.05)
    while True:
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\0\0\0\0")
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = link.ask(join, 2, JoinGroupResponse)
        if joined.error_code not in PASSING or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    if joined.error_code:
        raise RuntimeError(f"JoinGroup: error {joined.error_code}")
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")],
    )
    synced = link.ask(sync, 0, SyncGroupResponse)
    if synced.error_code:
        raise RuntimeError(f"SyncGroup: error {synced.error_code}")
    return joined.member_id, joined.generation_id
