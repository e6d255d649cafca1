"""What must hold whatever happens."""

from bisect import insort
from itertools import count
from typing import Any, Final, NamedTuple

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas_protocol.schema import Request, Response
from tests.sim.world import World

#: Seconds that a request may be parked: the largest rebalance timeout, the initial delay with its extensions, and an
#: append that times out.
PARKED_SECONDS = 60.0


#: Errors after which a commit may be in the log all the same, or get there. Any other says that it is not.
IN_DOUBT: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class Commit(NamedTuple):
    """A commit of one partition's offset.

    Attributes:
        rank: its place in the log if it gets there: the epoch of the coordinator that it arrived at, and its number
            among all arrivals. Appends of an epoch are in the order of arrivals, and an epoch's come before the next's.
        offset: what it commits.
        request: what it is a part of.
    """

    rank: tuple[int, int]
    offset: int
    request: OffsetCommitRequest


NOTHING: Final = Commit((-1, -1), -1, OffsetCommitRequest(group_id="", topics=[]))


class Invariants:
    """Watches the brokers' answers about one group.

    What holds for a committed offset, in Kafka too, is this: **it is that of the last commit in the log**. So once a
    commit is acknowledged, only it can be found there or one that is behind it in the log, which was neither refused
    nor needs to be acknowledged: its answer may be under way or lost. Nothing else is ever found, neither what was
    replaced, nor what was refused, nor what nobody committed.

    The offset itself goes back in one case only, which nobody can exclude: a client's connection broke, the client sent
    a newer commit over another one, and the older arrives after it. Both are of the same member and generation, and an
    OffsetCommit says no more about itself; Kafka takes it too, for a commit has no sequence number.

    Attributes:
        generation: the highest that a SyncGroup was answered in.
        last: the last commit of each partition that was acknowledged.
        assigned: how many partitions the leader of each generation has made its assignment for.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.generation = -1
        self.last: dict[int, Commit] = {}
        self.assigned: dict[int, int] = {}
        #: What may be in the log, by partition, in the order of ranks; what is before :attr:`last` is gone.
        self._commits: dict[int, list[Commit]] = {}
        self._numbers = count()
        #: The order in which clients sent their commits.
        self._sent: dict[int, int] = {}
        self._kept: list[OffsetCommitRequest] = []
        #: Who was given what: instance or member id by generation and partition.
        self._owners: dict[tuple[int, int], str] = {}

    def snapshot(self) -> tuple[dict[int, Commit], int]:
        """What is known when a request comes in."""
        return dict(self.last), self.generation

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

    def commit_arrives(self, node: int, epoch: int, request: OffsetCommitRequest) -> None:
        """A commit arrives at a broker that believes to be coordinator in `epoch`."""
        generation = request.generation_id_or_member_epoch
        offsets = offsets_of(request)
        self.world.note("node %d: commit %s, generation %d, of %s", node, offsets, generation, request.member_id)
        rank = (epoch, next(self._numbers))
        for partition, offset in offsets.items():
            insort(self._commits.setdefault(partition, []), Commit(rank, offset, request), key=lambda each: each.rank)

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
        for partition in offsets_of(request):
            commits = self._commits[partition]
            if codes[partition] != ErrorCode.NONE:
                if codes[partition] not in IN_DOUBT:
                    self._commits[partition] = [each for each in commits if each.request is not request]
                continue
            if generation < assigned:
                self.world.fail(f"a commit of generation {generation} succeeds after {assigned} was assigned")
            at = next((at for at, each in enumerate(commits) if each.request is request), None)
            if at is None:
                continue  # One that is behind it in the log was acknowledged before.
            made, before = commits[at], self.last.get(partition)
            if before and made.offset < before.offset and not self._overtaken(request, before.request):
                self.world.fail(
                    f"the committed offset of partition {partition} goes back to {made.offset} from {before}"
                )
            del commits[:at]
            self.last[partition] = made

    def _fetched(self, leads: bool, response: OffsetFetchResponse, known: Any) -> None:
        if not leads:
            return
        before, _ = known
        for group in response.groups:
            for topic in group.topics:
                for found in topic.partitions:
                    if found.error_code == ErrorCode.NONE:
                        index = found.partition_index
                        self.found(index, found.committed_offset, before.get(index, NOTHING))

    def found(self, partition: int, offset: int, last: Commit) -> None:
        """An offset is found, -1 for none, when `last` had been acknowledged."""
        possible = [each.offset for each in self._commits.get(partition, []) if each.rank > last.rank]
        if offset != last.offset and offset not in possible:
            self.world.fail(
                f"offset {offset} of partition {partition} is found, not that of {last} nor any of {possible}"
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
