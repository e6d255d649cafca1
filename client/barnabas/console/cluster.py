"""Asks the brokers of a cluster for its groups."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from barnabas.console.examiner import Examiner
from barnabas.console.histories import Histories
from barnabas.console.looks import Look
from barnabas.console.views import Observations, Observed, Position, one_group, positions_of, summary
from barnabas_broker.http.rates import Offsets
from barnabas_broker.http.samples import Samples
from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupListing, OffsetSpec
from barnabas_client.cli.advice import for_command_line
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Seconds for which a list of groups is good enough.
_LIST_SECONDS: Final = 1.0
#: Groups whose committed offsets are looked up at the same time.
_AT_ONCE: Final = 16
#: Seconds after which a group of the list is examined again, and one whose page is open.
_EXAMINED_SECONDS: Final = 60.0
_OPEN_SECONDS: Final = 5.0
#: Groups whose samples are kept for the curves of their pages.
_MOST_OPEN: Final = 64

Ends = dict[TopicPartition, int]


class Cluster:
    """The groups of a cluster.

    Args:
        admin: of its brokers.
        histories: the events of groups.
        examiner: finds out what is wrong with groups.
        now: a monotonic clock, in seconds.
        wall_ms: the time of day, in ms since 1970.
    """

    def __init__(
        self,
        admin: Admin,
        histories: Histories,
        examiner: Examiner,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
    ) -> None:
        self._admin, self._histories, self._now, self._wall_ms = admin, histories, now, wall_ms
        self._examiner = examiner
        self._samples = Samples()
        self._of_one: OrderedDict[str, Samples] = OrderedDict()
        self._observations = Observations()
        self._list = Look(self._look, _LIST_SECONDS, now)

    async def groups(self) -> dict[str, Any]:
        """A summary of every group. Any number of requests costs no more than one.

        Raises:
            KafkaError: no broker answers.
        """
        return await self._list.get()

    def stop(self) -> None:
        """Do not wait for the brokers any more."""
        self._list.stop()
        self._examiner.stop()

    async def _look(self) -> dict[str, Any]:
        admin = self._admin
        listed = await admin.list_consumer_groups(raise_errors=False)
        names = [each.group_id for each in listed]
        descriptions = await admin.describe_consumer_groups(names, raise_errors=False) if names else []
        described = {each.group_id: each for each in descriptions}
        some = asyncio.Semaphore(_AT_ONCE)

        async def offsets(group: GroupListing) -> "dict[TopicPartition, int | None] | KafkaError":
            async with some:
                return await self._committed(group.group_id)

        committed = dict(zip(names, await asyncio.gather(*map(offsets, listed)), strict=True))
        wanted = {tp for found in committed.values() if isinstance(found, dict) for tp in found}
        ends, stables = await self._ends(wanted)
        rows = []
        for each in listed:
            group, found = described[each.group_id], committed[each.group_id]
            error = group.error or (found if isinstance(found, KafkaError) else None)
            known = None if group.error is not None else group
            positions = positions_of(known, found if isinstance(found, dict) else {}, ends, stables)
            if known is not None and not known.members and any(position.lag for position in positions):
                self._examiner.ask(known, _EXAMINED_SECONDS)
            state = each.state if known is None else known.state
            rows.append(
                summary(
                    each,
                    known,
                    positions,
                    self._observed(each.group_id, state, positions, self._samples),
                    generation=self._histories.generation(each.group_id),
                    error=None if error is None else for_command_line(error),
                )
            )
        self._samples.end_round(described)
        failures = sorted({for_command_line(error) for error in listed.errors})
        return {"cluster": True, "unloaded_partitions": [], "failures": failures, "groups": rows}

    async def group(self, name: str) -> dict[str, Any] | None:
        """A group with its members and offsets; None if there is none.

        Raises:
            KafkaError: it cannot be described.
        """
        (described,) = await self._admin.describe_consumer_groups([name], raise_errors=False)
        committed = await self._committed(name)
        if isinstance(committed, KafkaError):
            raise described.error or committed
        if described.error is not None and described.error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise described.error
        if described.state in ("Dead", "") and not committed:
            return None
        owned = {tp for member in described.members for tp in member.partitions}
        ends, stables = await self._ends({*committed, *owned})
        positions = positions_of(described, committed, ends, stables)
        if described.error is None:
            self._examiner.ask(described, _OPEN_SECONDS)
        samples = self._samples_of(name)
        observed = self._observed(name, described.state, positions, samples)
        samples.end_round((name,))
        return one_group(described, positions, observed, generation=self._histories.generation(name))

    def curves(self, name: str, since_ms: int) -> tuple[int, dict[str, Any]]:
        """The version of the samples of a group, and the samples since a time: those of the looks of a page at it."""
        samples = self._samples_of(name)
        return samples.newest(name), samples.curves(name, since_ms)

    def _samples_of(self, name: str) -> Samples:
        """The samples of a group whose page is open. A look at all groups is too rare to draw the curves of one."""
        samples = self._of_one.setdefault(name, Samples())
        self._of_one.move_to_end(name)
        if len(self._of_one) > _MOST_OPEN:
            self._of_one.popitem(last=False)
        return samples

    def _observed(self, name: str, state: str, positions: Sequence[Position], samples: Samples) -> Observed:
        offsets = (Offsets(*each.partition, each.committed, each.end) for each in positions)
        samples.add(name, offsets, self._wall_ms() / 1000)
        observed = self._observations.look(name, state, positions, self._now())
        return observed._replace(
            age=samples.age(name),
            rates=samples.rates(name),
            flapping=self._histories.is_flapping(name),
            storm=self._histories.storm_score(name),
            findings=self._examiner.known(name),
        )

    async def _committed(self, group: str) -> "dict[TopicPartition, int | None] | KafkaError":
        try:
            found = await self._admin.list_consumer_group_offsets(group, raise_errors=False)
        except KafkaError as error:
            return error
        return {tp: one.offset for tp, one in found.items()}

    async def _ends(self, partitions: Iterable[TopicPartition]) -> tuple[Ends, Ends]:
        """The high watermarks and the last stable offsets; deleted partitions are left out."""
        wanted = dict.fromkeys(partitions, OffsetSpec.LATEST)
        if not wanted:
            return {}, {}
        ends, stables = await asyncio.gather(
            self._admin.list_offsets(wanted, raise_errors=False),
            self._admin.list_offsets(wanted, read_committed=True, raise_errors=False),
        )
        return (
            {tp: one.offset for tp, one in ends.items() if one.error is None},
            {tp: one.offset for tp, one in stables.items() if one.error is None},
        )
