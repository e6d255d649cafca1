"""Keeps the ISR of the partitions that this broker leads as it should be, many partitions in one change.

Followers that have caught up are admitted as soon as their fetch shows it; those that lag are put out by a look at all
leaderships every half of ``replica.lag.time.max.ms``. One change is on its way at a time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from barnabas_broker.cluster.controller import IsrChange
from barnabas_broker.config import Config
from barnabas_broker.config.keys import REPLICA_LAG_TIME_MAX_MS
from barnabas_broker.logs import logger
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.partition import Hosted
from barnabas_protocol.errors import KafkaError

log = logger("replication")

#: Asks the cluster to change ISRs; what it agrees to comes back with the image. Raises KafkaError.
Propose = Callable[[Sequence[IsrChange]], Awaitable[None]]


class IsrKeeper:
    """The ISRs of this broker's leaderships.

    Args:
        replicas: the partitions of this broker.
        config: the broker's configuration.
        live: the brokers that are there.
        propose: asks the cluster.
        now: a clock that only goes forward, in seconds.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        config: Config,
        live: Callable[[], Collection[int]],
        propose: Propose,
        now: Callable[[], float],
    ) -> None:
        self._replicas = replicas
        self._config = config
        self._live = live
        self._propose = propose
        self._now = now
        self._joining: set[Hosted] = set()
        self._something = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="isr")

    async def close(self) -> None:
        """Stop looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def caught_up(self, hosted: Hosted) -> None:
        """A follower of this partition may join the ISR."""
        self._joining.add(hosted)
        self._something.set()

    async def _run(self) -> None:
        looked = self._now()
        while True:
            left = looked + self._config[REPLICA_LAG_TIME_MAX_MS] / 2000 - self._now()
            try:
                async with asyncio.timeout(left):
                    await self._something.wait()
                look_at: Collection[Hosted] = list(self._joining)
            except TimeoutError:
                left = 0
            if left <= 0:  # however often somebody may join, those that lag are looked for
                look_at, looked = [hosted for _, hosted in self._replicas.hosted()], self._now()
            self._joining.clear()
            self._something.clear()
            await self._change(look_at)

    async def _change(self, look_at: Collection[Hosted]) -> None:
        lag, live, now = self._config[REPLICA_LAG_TIME_MAX_MS] / 1000, self._live(), self._now()
        proposed = []
        for hosted in look_at:
            leading = hosted.leading
            if leading is None or leading.proposed is not None:
                continue
            wanted = leading.wanted_isr(hosted.high_watermark, now, lag, live)
            if set(wanted) != set(leading.info.isr):
                where, info = hosted.log.topic_partition, leading.info
                log.info("ISR to be changed", partition=str(where), isr=list(info.isr), wanted=list(wanted))
                members = leading.propose(wanted)
                change = IsrChange(
                    where.topic, hosted.log.topic_id, where.partition, info.leader_epoch, info.partition_epoch, members
                )
                proposed.append((hosted, leading, change))
        if not proposed:
            return
        try:
            await self._propose([change for _, _, change in proposed])
        except KafkaError as error:
            log.warning("nobody knows whether the ISR was changed", error=error.code.name, reason=str(error))
            for _, leading, _ in proposed:
                leading.unsettled()
            return
        for hosted, leading, _ in proposed:
            # What was agreed to has come back with the image by now; what is left was refused.
            if leading.proposed is not None:
                leading.refused()
                hosted.advance()
