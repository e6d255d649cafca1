"""What must hold whatever happens."""

from typing import Any

from barnabas_protocol.apis.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas_protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas_protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas_protocol.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.schema import Request, Response
from tests.sim.world import World

#: Seconds that a request may be parked: the largest rebalance timeout, the initial delay with its extensions, and an
#: append that times out.
PARKED_SECONDS = 60.0


class Invariants:
    """Watches the brokers' answers.

    Attributes:
        generation: the highest that a SyncGroup was answered in.
        committed: the highest offset of each partition that a commit was acknowledged for.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.generation = -1
        self.committed: dict[int, int] = {}
        #: The request that made each committed offset what it is.
        self._by: dict[int, OffsetCommitRequest] = {}
        #: The order in which clients sent their commits, and in which they arrived.
        self._sent: dict[int, int] = {}
        self._kept: list[OffsetCommitRequest] = []
        self._arrived: dict[int, list[OffsetCommitRequest]] = {}
        #: Who was given what: instance or member id by generation and partition.
        self._owners: dict[tuple[int, int], str] = {}

    def snapshot(self) -> tuple[dict[int, int], int]:
        """What is known when a request comes in."""
        return dict(self.committed), self.generation

    def commit_leaves(self, request: OffsetCommitRequest) -> None:
        """A client sends a commit."""
        self._sent[id(request)] = len(self._kept)
        self._kept.append(request)

    def _overtaken(self, late: OffsetCommitRequest, before: OffsetCommitRequest) -> bool:
        """Whether a commit comes late, over a connection that broke: its client had sent it before the other."""
        same = late.member_id == before.member_id
        return (
            same
            and late.generation_id_or_member_epoch == before.generation_id_or_member_epoch
            and self._sent[id(late)] < self._sent[id(before)]
        )

    def commit_arrives(self, node: int, request: OffsetCommitRequest) -> None:
        """A commit arrives at a broker. One that was overtaken may count although nobody hears that it does."""
        generation = request.generation_id_or_member_epoch
        offsets = offsets_of(request)
        self.world.note("node %d: commit %s, generation %d, of %s", node, offsets, generation, request.member_id)
        for partition, offset in offsets.items():
            self._arrived.setdefault(partition, []).append(request)
            by = self._by.get(partition)
            if by is not None and self._overtaken(request, by):
                self.committed[partition] = min(self.committed[partition], offset)

    def answered(self, leads: bool, request: Request, response: Response, known: Any) -> None:
        """A broker answers; `leads` if it is in truth the coordinator."""
        if isinstance(request, SyncGroupRequest) and isinstance(response, SyncGroupResponse):
            if response.error_code == ErrorCode.NONE:
                self._synced(leads, request, response)
        elif isinstance(request, JoinGroupRequest) and isinstance(response, JoinGroupResponse):
            if response.error_code == ErrorCode.NONE and leads and response.generation_id < self.generation:
                self.world.fail(f"generation {response.generation_id} is told after {self.generation} was assigned")
        elif isinstance(request, OffsetCommitRequest) and isinstance(response, OffsetCommitResponse):
            self._commit(request, response, known)
        elif isinstance(request, OffsetFetchRequest) and isinstance(response, OffsetFetchResponse):
            self._fetched(leads, response, known)

    def _synced(self, leads: bool, request: SyncGroupRequest, response: SyncGroupResponse) -> None:
        generation = request.generation_id
        if leads and generation < self.generation:
            self.world.fail(f"a SyncGroup of generation {generation} succeeds after {self.generation} was assigned")
        self.generation = max(self.generation, generation)
        owner = request.group_instance_id or request.member_id
        for partition in partitions_of(bytes(response.assignment)):
            before = self._owners.setdefault((generation, partition), owner)
            if before != owner:
                self.world.fail(f"partition {partition} is given to {before} and {owner} in generation {generation}")

    def _commit(self, request: OffsetCommitRequest, response: OffsetCommitResponse, known: Any) -> None:
        _, assigned = known
        generation = request.generation_id_or_member_epoch
        codes = {p.partition_index: p.error_code for t in response.topics for p in t.partitions}
        for partition, offset in offsets_of(request).items():
            if codes[partition] != ErrorCode.NONE:
                continue
            if generation < assigned:
                self.world.fail(f"a commit of generation {generation} succeeds after {assigned} was assigned")
            before = self.committed.get(partition, 0)
            if offset < before and not self._overtaken(request, self._by[partition]):
                self.world.fail(f"the committed offset of partition {partition} goes from {before} to {offset}")
            arrived = self._arrived[partition]
            del arrived[: next((at for at, each in enumerate(arrived) if each is request), 0)]
            late = [offsets_of(each)[partition] for each in arrived[1:] if self._overtaken(each, request)]
            self.committed[partition] = min([offset, *late])
            self._by[partition] = request

    def _fetched(self, leads: bool, response: OffsetFetchResponse, known: Any) -> None:
        if not leads:
            return
        before, _ = known
        for group in response.groups:
            for topic in group.topics:
                for found in topic.partitions:
                    least = before.get(found.partition_index, -1)
                    if found.error_code == ErrorCode.NONE and found.committed_offset < least:
                        self.world.fail(
                            f"offset {least} of partition {found.partition_index} was acknowledged,"
                            f" and {found.committed_offset} is there"
                        )


def partitions_of(assignment: bytes) -> list[int]:
    """The partition numbers of an assignment of one topic."""
    if len(assignment) < 6 or assignment[2:6] == b"\x00\x00\x00\x00":
        return []
    size = int.from_bytes(assignment[6:8], "big")
    at = 8 + size
    count = int.from_bytes(assignment[at : at + 4], "big")
    return [int.from_bytes(assignment[at + 4 + 4 * i : at + 8 + 4 * i], "big") for i in range(count)]


def offsets_of(request: OffsetCommitRequest) -> dict[int, int]:
    """What a commit of one topic says, by partition."""
    return {p.partition_index: p.committed_offset for t in request.topics for p in t.partitions}
