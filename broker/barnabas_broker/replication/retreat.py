"""A broker that cannot write leaves the ISRs and lets others lead, at once, and returns when it can write again.

Otherwise acks=all would wait for it until ``replica.lag.time.max.ms`` is over, in every partition of which it has a
replica. It leaves by a compare-and-set in the metadata, see :mod:`barnabas_broker.cluster.controller.withdrawal`, and
fetches nothing meanwhile, so that leaders do not count it as in sync again. Where no other replica can lead it stays,
and serves reads.

A small write may succeed where larger ones fail. So it returns when a trial write has succeeded, and the pauses before
it grow while returns do not last: on a disk that is full again and again, leaders do not move all the time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from barnabas_broker.backoff import jittered
from barnabas_broker.cluster.controller import Withdrawal
from barnabas_broker.cluster.image import (
    Event,
    Image,
    PartitionChanged,
    PartitionInfo,
    PartitionsAdded,
    TopicCreated,
    TopicInfo,
)
from barnabas_broker.conditions import Condition, ConditionName
from barnabas_broker.logs import logger
from barnabas_broker.storage import LogDirectory
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import ErrorCode, KafkaError

log = logger("replication")

#: Seconds between attempts to leave: the first pause, and the longest.
_LEAVE_SECONDS: Final = (0.1, 5.0)
#: Seconds until a trial write: the first pause, and the longest.
_TRIAL_SECONDS: Final = (1.0, 30.0)
#: Seconds of writing after which the pauses begin anew.
_STEADY_SECONDS: Final = 60.0
#: Partitions that are looked at in one turn of the event loop.
_PIECE: Final = 1_000

#: Takes replicas of this broker out of ISRs and leaderships. Raises KafkaError.
Withdraw = Callable[[Sequence[Withdrawal]], Awaitable[None]]


class Retreat:
    """Runs from its creation, which needs a running event loop, until :meth:`close`.

    Args:
        directory: the log directory.
        node_id: this broker.
        image: the cluster image.
        min_isr: a topic's ``min.insync.replicas``.
        withdraw: takes replicas out of ISRs and leaderships.
        resume: called when the broker may fetch again.
        now: a monotonic clock, in seconds.

    Attributes:
        active: whether the broker does not write, and so must not fetch.
    """

    def __init__(
        self,
        directory: LogDirectory,
        node_id: int,
        image: Callable[[], Image],
        min_isr: Callable[[TopicInfo], int],
        withdraw: Withdraw,
        resume: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self.active = False
        self._directory = directory
        self._node_id = node_id
        self._image = image
        self._min_isr = min_isr
        self._withdraw = withdraw
        self._resume = resume
        self._now = now
        self._reason = ""
        self._troubles = 0
        self._returned = float("-inf")
        self._wake = asyncio.Event()
        directory.on_trouble = self._trouble
        self._task = asyncio.get_running_loop().create_task(self._run(), name="retreat")

    async def close(self) -> None:
        """Stop."""
        self._directory.on_trouble = _ignore
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def conditions(self) -> Iterable[Condition]:
        """That the broker has left, if its directory does not say so itself."""
        if self.active and self._directory.shortage is self._directory.failure is None:
            yield Condition(
                ConditionName.DISK_FULL,
                f"the broker has left the ISRs because it could not write ({self._reason}). It returns by itself when "
                "a trial write has succeeded, within half a minute",
            )

    def _trouble(self, reason: str) -> None:
        """A write has failed."""
        self._troubles += 1
        self._reason = reason
        self.active = True
        self._wake.set()

    def image_changed(self, image: Image, events: Sequence[Event]) -> None:
        """Leave again if this broker is in an ISR: of a new topic, or because a leader has added it."""
        if self.active and any(isinstance(each, PartitionChanged | PartitionsAdded | TopicCreated) for each in events):
            self._wake.set()

    async def _run(self) -> None:
        trials = jittered(*_TRIAL_SECONDS, seed=f"retreat {self._node_id}")
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self.active:
                continue
            log.error("broker cannot write: it leaves the ISRs, and others lead its partitions", reason=self._reason)
            if self._now() - self._returned >= _STEADY_SECONDS:
                trials.succeeded()
            pauses = jittered(*_LEAVE_SECONDS, seed=f"leave {self._node_id}")
            await self._stay_away(trials.failed(), pauses)
            while not await self._can_write():
                await self._stay_away(trials.failed(), pauses)
            self.active, self._returned = False, self._now()
            log.info("broker can write again: it returns to the ISRs", before=self._reason)
            self._resume()

    async def _can_write(self) -> bool:
        """Whether a trial write succeeds, and nothing else fails meanwhile."""
        troubles = self._troubles
        return await self._directory.can_write() and troubles == self._troubles

    async def _stay_away(self, seconds: float, pauses: Backoff) -> None:
        """Keep out of ISRs and leaderships for some time, with pauses between the attempts to leave."""
        until = self._now() + seconds
        while True:
            self._wake.clear()
            try:
                await self._leave()
            except KafkaError as error:
                # A broker that is not registered is in no ISR when it is registered again, or leaves it then.
                level = log.debug if error.code is ErrorCode.STALE_BROKER_EPOCH else log.warning
                level("the ISRs cannot be left yet", error=error.code.name, reason=str(error))
                self._wake.set()
            # A leader that adds this broker at once, or an etcd that refuses, is not asked all the time.
            await asyncio.sleep(min(pauses.failed(), max(until - self._now(), 0.0)))
            left = until - self._now()
            if left <= 0:
                return
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                return

    async def _leave(self) -> None:
        withdrawals = []
        number = 0
        for topic in list(self._image().topics.values()):
            for index, partition in enumerate(topic.partitions):
                number += 1
                if number % _PIECE == 0:
                    await asyncio.sleep(0)
                if self._should_leave(partition):
                    withdrawals.append(
                        Withdrawal(
                            topic.name,
                            topic.topic_id,
                            index,
                            partition.leader_epoch,
                            min(self._min_isr(topic), len(partition.replicas)),
                            lost=False,
                        )
                    )
        if withdrawals:
            await self._withdraw(withdrawals)

    def _should_leave(self, partition: PartitionInfo) -> bool:
        me = self._node_id
        if partition.leader == me:
            return any(node != me for node in (*partition.isr, *partition.elr))
        return me in partition.isr


def _ignore(reason: str) -> None:
    """Do nothing about a failed write: the maintenance tries again."""
