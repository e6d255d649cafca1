"""Proposes ISRs for the partitions that this broker leads, many partitions in one request (Kafka's
``AlterPartitionManager``).

A follower is proposed as soon as a fetch shows that it has caught up. Followers that lag are removed by a check of all
partitions every half of ``replica.lag.time.max.ms``. One request is in flight at a time.

A leader that registered followers do not reach resigns, if they can go on without it. Apache Kafka's leader removes
them from the ISR, and refuses writes until they reach it. Any member of the ISR may lead at any time, so this needs no
proof that the leader is cut off. Partitions with silent followers are looked for twice in the time that counts.

Some followers may have left the ISR before the leader resigns. Then the new leader needs them to return before it
accepts writes, and resigns as well if it does not hear of them: which of the brokers can reach the others shows by
trying. If none can, leaders would change all the time, so the pauses between such resignations grow.

It also reports the ends of logs that may have lost records, if a partition has no leader and waits for them, and takes
replicas that have lost records out of the ISRs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from barnabas_broker.backoff import jittered
from barnabas_broker.cluster.controller import IsrChange, LogEnd, Withdrawal
from barnabas_broker.cluster.image import BrokerInfo
from barnabas_broker.config import Config
from barnabas_broker.config.keys import BROKER_SESSION_TIMEOUT_MS, REPLICA_LAG_TIME_MAX_MS
from barnabas_broker.logs import logger
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.replica import Replica
from barnabas_protocol.errors import KafkaError

log = logger("replication")

#: Proposes ISRs to the cluster. Accepted ones arrive with the image before this returns. Raises KafkaError.
Propose = Callable[[Sequence[IsrChange]], Awaitable[None]]
#: Reports the ends of logs to the cluster. Raises KafkaError.
Report = Callable[[Sequence[LogEnd]], Awaitable[None]]
#: Takes replicas of this broker out of the ISRs and the ELRs. Raises KafkaError.
Withdraw = Callable[[Sequence[Withdrawal]], Awaitable[None]]
#: Seconds until a report that has failed is repeated: the first pause, and the longest.
_RETRY_SECONDS: Final = (1.0, 10.0)
#: The pause between two resignations that leave too few replicas in sync, in times of silence: the first pause, and the
#: longest. After twice the longest pause without one they begin anew.
_TRIALS: Final = (1, 16)


class AlterPartitionManager:
    """Runs from its creation, which needs a running event loop, until :meth:`close`.

    Args:
        replicas: the replicas on this broker.
        config: the broker's configuration.
        live: the registered brokers.
        propose: proposes ISRs to the cluster.
        report: reports the ends of logs to the cluster.
        withdraw: takes replicas of this broker out of the ISRs and the ELRs.
        now: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        config: Config,
        live: Callable[[], Mapping[int, BrokerInfo]],
        propose: Propose,
        report: Report,
        withdraw: Withdraw,
        now: Callable[[], float],
    ) -> None:
        self._replicas = replicas
        self._config = config
        self._live = live
        self._propose = propose
        self._report = report
        self._withdraw = withdraw
        self._now = now
        self._backoff = jittered(*_RETRY_SECONDS, seed=f"log ends {replicas.node_id}")
        self._trials = jittered(*_TRIALS, seed=f"trials {replicas.node_id}")
        #: When the last resignation was that left too few replicas in sync, and when there may be another one.
        self._tried = self._try_again = float("-inf")
        self._joining: dict[Replica, None] = {}
        self._wake = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="isr")

    async def close(self) -> None:
        """Stop."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def caught_up(self, replica: Replica) -> None:
        """Propose a larger ISR soon, or report the end of the log: see :data:`.CaughtUp`."""
        self._joining[replica] = None
        self._wake.set()

    async def _run(self) -> None:
        checked = looked = self._now()
        while True:
            left = looked + self._silent_seconds() / 2 - self._now()
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
                candidates: Collection[Replica] = list(self._joining)
            except TimeoutError:
                left = 0
            if left <= 0:  # also when followers keep joining: lagging ones must be found
                looked = self._now()
                self._replicas.retry()
                if looked - checked >= self._config[REPLICA_LAG_TIME_MAX_MS] / 2000:
                    candidates, checked = list(self._replicas.each()), looked
                else:
                    candidates = [*dict.fromkeys([*self._joining, *self._with_silent_followers(looked)])]
            self._joining.clear()
            self._wake.clear()
            await self._leave([each for each in candidates if self._replicas.has_lost(each)])
            await self._change(candidates)
            await self._report_ends([each for each in candidates if self._replicas.is_awaited(each)])

    def _with_silent_followers(self, now: float) -> list[Replica]:
        since = now - self._silent_seconds()
        return [each for each in self._replicas.each() if each.leading is not None and each.leading.silent(since)]

    def _silent_seconds(self) -> float:
        """How long followers do not fetch until a leader counts as cut off: they are in the ISR for longer than that,
        and a broker that has ended is fenced by then."""
        return min(self._config[REPLICA_LAG_TIME_MAX_MS] / 2, self._config[BROKER_SESSION_TIMEOUT_MS]) / 1000

    async def _report_ends(self, replicas: Collection[Replica]) -> None:
        ends = []
        for replica in replicas:
            where = replica.log.topic_partition
            # A power failure may also leave holes. A replica without them has all committed records up to its end,
            # so it must win: the log counts up to the first hole.
            damage = [bad.offset for bad in replica.log.damage]
            if self._replicas.has_lost(replica) and replica.log.loss is not None:
                damage.append(replica.log.loss.offset)
            end = min([replica.log.log_end_offset, *damage])
            epoch = replica.log.leader_epochs.epoch_for(end - 1) if end else -1
            log.info("reporting the end of a log", partition=str(where), epoch=epoch, end=end)
            ends.append(LogEnd(where.topic, replica.log.topic_id, where.partition, epoch, end, bool(damage)))
        if not ends:
            return
        try:
            await self._report(ends)
        except KafkaError as error:
            log.info("the ends of logs are not reported yet", error=error.code.name, reason=str(error))
            pause = self._backoff.failed()
            asyncio.get_running_loop().call_later(pause, self._again, list(replicas))
        else:
            self._backoff.succeeded()

    async def _leave(self, replicas: Collection[Replica]) -> None:
        """Take replicas that have lost records out of the ISRs and the ELRs."""
        withdrawals = []
        for replica in replicas:
            where = replica.log.topic_partition
            withdrawals.append(
                Withdrawal(where.topic, replica.log.topic_id, where.partition, replica.lost_since, replica.min_isr)
            )
        if not withdrawals:
            return
        try:
            await self._withdraw(withdrawals)
        except KafkaError as error:
            # The next check repeats it.
            log.info("lost records are not reported yet", error=error.code.name, reason=str(error))

    def _again(self, replicas: Collection[Replica]) -> None:
        self._joining.update(dict.fromkeys(replicas))
        self._wake.set()

    async def _change(self, candidates: Collection[Replica]) -> None:
        lag, live, now = self._config[REPLICA_LAG_TIME_MAX_MS] / 1000, self._live(), self._now()
        proposed, tried = [], False
        for replica in candidates:
            leading = replica.leading
            if leading is None or leading.proposed is not None:
                continue
            resignation = leading.wanted_without_me(now - self._silent_seconds(), replica.min_isr, live)
            if resignation is not None and (resignation.enough or now >= self._try_again):
                wanted = resignation.isr
                tried = tried or not resignation.enough
                log.warning(
                    "followers do not fetch from this leader: another replica is to lead",
                    partition=str(replica.log.topic_partition),
                    isr=list(leading.info.isr),
                    wanted=list(wanted),
                )
            else:
                wanted = leading.wanted_isr(replica.high_watermark, now, lag, live)
            if set(wanted) != set(leading.info.isr) or replica.outgrows_elr():
                where, info = replica.log.topic_partition, leading.info
                log.info("proposing an ISR", partition=str(where), isr=list(info.isr), wanted=list(wanted))
                members = leading.propose(wanted)
                change = IsrChange(
                    where.topic,
                    replica.log.topic_id,
                    where.partition,
                    info.leader_epoch,
                    info.partition_epoch,
                    members,
                    replica.min_isr,
                )
                proposed.append((replica, leading, change))
        if not proposed:
            return
        if tried:
            self._has_tried(now)
        try:
            await self._propose([change for _, _, change in proposed])
        except KafkaError as error:
            log.warning("the outcome of an ISR proposal is unknown", error=error.code.name, reason=str(error))
            for _, leading, _ in proposed:
                leading.outcome_unknown()
            return
        for replica, leading, _ in proposed:
            # Accepted proposals have arrived with the image by now, so the others were rejected.
            if leading.proposed is not None:
                leading.rejected()
                replica.advance()

    def _has_tried(self, now: float) -> None:
        """This broker has resigned although too few replicas are in sync with the next leader."""
        silent = self._silent_seconds()
        if now - self._tried >= 2 * _TRIALS[1] * silent:
            self._trials.succeeded()
        self._tried, self._try_again = now, now + self._trials.failed() * silent
