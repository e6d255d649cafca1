"""The invariants: what must be true whatever happens."""

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

#: Seconds that a response may be deferred: the largest rebalance timeout, the initial rebalance delay with its
#: extensions, and an append that times out.
DEFERRED_SECONDS = 60.0


#: Errors after which a commit may be in the log, now or later. After any other error it is not.
IN_DOUBT: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class Commit(NamedTuple):
    """A commit of one partition's offset.

    Attributes:
        rank: its position in the log, if it is appended: the epoch of the coordinator that received it, and its number
            among all received commits. Appends of an epoch are in this order, and before those of the next epoch.
        offset: the committed offset.
        request: the request that it is a part of.
    """

    rank: tuple[int, int]
    offset: int
    request: OffsetCommitRequest


NOTHING: Final = Commit((-1, -1), -1, OffsetCommitRequest(group_id="", topics=[]))


class Invariants:
    """Checks the brokers' responses about one group.

    The rule for a committed offset, in Kafka as well, is: **it is that of the last commit in the log**. Once a commit
    is acknowledged, OffsetFetch returns it, or a later commit in the log that was not refused; that one need not be
    acknowledged, because its response may be delayed or lost. OffsetFetch never returns a commit that was replaced or
    refused, nor an offset that was not committed.

    An offset can go back in one case, which a broker cannot exclude: a client's connection breaks, the client sends a
    newer commit over another one, and the older commit arrives after it. Both have the same member and generation, and
    an OffsetCommit has no sequence number; Kafka accepts it, too.

    Attributes:
        generation: the highest generation of a successful SyncGroup.
        last: the last acknowledged commit of each partition.
        assigned: the number of partitions that the leader of each generation has assigned.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.generation = -1
        self.last: dict[int, Commit] = {}
        self.assigned: dict[int, int] = {}
        #: The commits that may be in the log, by partition, in the order of ranks; none before :attr:`last`.
        self._commits: dict[int, list[Commit]] = {}
        self._numbers = count()
        #: The order in which clients sent commits.
        self._sent: dict[int, int] = {}
        self._kept: list[OffsetCommitRequest] = []
        #: Instance id or member id by generation and assigned partition.
        self._owners: dict[tuple[int, int], str] = {}

    def snapshot(self) -> tuple[dict[int, Commit], int]:
        """The state at the arrival of a request."""
        return dict(self.last), self.generation

    def arrives(self, request: Request) -> Any:
        """A request arrives: what :meth:`answered` has to know of this moment."""
        return self.snapshot() if isinstance(request, OffsetFetchRequest | OffsetCommitRequest) else None

    def commit_leaves(self, request: OffsetCommitRequest) -> None:
        """A client sends a commit."""
        self._sent[id(request)] = len(self._kept)
        self._kept.append(request)

    def _overtaken(self, late: OffsetCommitRequest, before: OffsetCommitRequest) -> bool:
        """Whether a client sent the commit `late` before `before`, over a connection that broke."""
        same = late.member_id == before.member_id
        return (
            same
            and late.generation_id_or_member_epoch == before.generation_id_or_member_epoch
            and self._sent[id(late)] < self._sent[id(before)]
        )

    def commit_arrives(self, node: int, epoch: int, request: OffsetCommitRequest) -> None:
        """A commit arrives at a broker that believes to be the coordinator with leader epoch `epoch`."""
        generation = request.generation_id_or_member_epoch
        offsets = offsets_of(request)
        self.world.note("node %d: commit %s, generation %d, of %s", node, offsets, generation, request.member_id)
        rank = (epoch, next(self._numbers))
        for partition, offset in offsets.items():
            insort(self._commits.setdefault(partition, []), Commit(rank, offset, request), key=lambda each: each.rank)

    def answered(self, leads: bool, request: Request, response: Response, known: Any) -> None:
        """A broker responds; `leads` if it really is the coordinator."""
        if isinstance(request, SyncGroupRequest) and isinstance(response, SyncGroupResponse):
            if response.error_code == ErrorCode.NONE:
                self._synced(leads, request, response)
        elif isinstance(request, JoinGroupRequest) and isinstance(response, JoinGroupResponse):
            if response.error_code == ErrorCode.NONE and leads and response.generation_id < self.generation:
                self.world.fail(f"generation {response.generation_id} is returned after {self.generation} was assigned")
        elif isinstance(request, OffsetCommitRequest) and isinstance(response, OffsetCommitResponse):
            self._commit(request, response, known)
        elif isinstance(request, OffsetFetchRequest) and isinstance(response, OffsetFetchResponse):
            self._fetched(leads, request, response, known)

    def _synced(self, leads: bool, request: SyncGroupRequest, response: SyncGroupResponse) -> None:
        generation = request.generation_id
        if leads and generation < self.generation:
            self.world.fail(f"a SyncGroup of generation {generation} succeeds after {self.generation} was assigned")
        self.generation = max(self.generation, generation)
        owner = request.group_instance_id or request.member_id
        for partition in partitions_of(bytes(response.assignment)):
            before = self._owners.setdefault((generation, partition), owner)
            if before != owner:
                self.world.fail(f"partition {partition} is assigned to {before} and {owner} in generation {generation}")

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
                continue  # A later commit in the log was acknowledged earlier.
            made, before = commits[at], self.last.get(partition)
            if before and made.offset < before.offset and not self._overtaken(request, before.request):
                self.world.fail(
                    f"the committed offset of partition {partition} goes back to {made.offset} from {before}"
                )
            del commits[:at]
            self.last[partition] = made

    def _fetched(self, leads: bool, request: OffsetFetchRequest, response: OffsetFetchResponse, known: Any) -> None:
        if not leads or request.require_stable:
            return  # Processors check themselves what they read.
        before, _ = known
        for group in response.groups:
            for topic in group.topics:
                for found in topic.partitions:
                    if found.error_code == ErrorCode.NONE:
                        index = found.partition_index
                        self.found(index, found.committed_offset, before.get(index, NOTHING))

    def found(self, partition: int, offset: int, last: Commit) -> None:
        """OffsetFetch returns an offset, -1 for none, when `last` is the last acknowledged commit."""
        possible = [each.offset for each in self._commits.get(partition, []) if each.rank > last.rank]
        if offset != last.offset and offset not in possible:
            self.world.fail(
                f"the offset of partition {partition} is {offset}, but must be that of {last} or one of {possible}"
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
    """The offsets of a commit of one topic, by partition."""
    return {p.partition_index: p.committed_offset for t in request.topics for p in t.partitions}
