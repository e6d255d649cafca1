"""Injects faults into machines under load, repairs them, and checks the history of the load for anomalies.

The load is both Barnabas's own client and librdkafka, each on its own topic. Groups of librdkafka's members use the
classic protocol, the consumer protocol, or change from one to the other and back.

python -m tests.cluster.nemesis --minutes 30 [--seed N]
"""

import argparse
import asyncio
import faulthandler
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from barnabas_client import Admin, Consumer, KafkaError, NewTopic, TopicPartition
from barnabas_protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from tests.checker.checker import check
from tests.checker.groups import CONSUMER, COOPERATIVE, EAGER, NO_RETURN, Plan
from tests.checker.history import History, Kind, Outcome
from tests.checker.workload import Workload, serves_transactions
from tests.cluster.harness import eventually
from tests.cluster.hosts import namespaces_work
from tests.cluster.load import GROUP, PARTITIONS, TOPIC, Reader, Writer, read_all, with_outcome
from tests.cluster.stand import BROKERS, ELSEWHERE, Machine, Stand

#: Seconds after the last fault in which everything must recover.
HEAL_SECONDS = 90.0
#: The topic of librdkafka's load.
FOREIGN = "foreign"
#: Milliseconds within which members of the groups have to poll.
_POLL_INTERVAL_MS = 15_000
#: The groups of librdkafka's members. Those of two protocols are upgraded and downgraded again and again, with a static
#: member that changes its protocol in its place.
GROUPS = (
    Plan(FOREIGN),
    Plan("classic", [COOPERATIVE], members=2, poll_interval_ms=_POLL_INTERVAL_MS),
    Plan("consumer", [CONSUMER], members=3, poll_interval_ms=_POLL_INTERVAL_MS),
    Plan("migrating", [EAGER, CONSUMER], members=3, static=1, poll_interval_ms=_POLL_INTERVAL_MS),
    Plan("migrating gradually", [COOPERATIVE, CONSUMER], members=3, static=1, poll_interval_ms=_POLL_INTERVAL_MS),
)
#: Members of the consumer protocol are as quick as those of the classic one.
_SETTINGS = (
    "group.consumer.min.heartbeat.interval.ms=1000",
    "group.consumer.heartbeat.interval.ms=1000",
    "group.consumer.min.session.timeout.ms=6000",
    "group.consumer.session.timeout.ms=6000",
)
#: What brokers log when they change the protocol of a group.
_UPGRADED, _DOWNGRADED = b"group upgraded to the consumer protocol", b"group downgraded to the classic protocol"


class Nemesis:
    """Injects one fault after another, each in turn, in random order.

    A majority of the etcd members and of the brokers stays healthy, except for the faults that stop all of them. A disk
    is lost or damaged only while every partition has all its replicas in sync: two losses in a row are not survived.
    """

    def __init__(self, stand: Stand, chance: random.Random, tell: Callable[[str], None]) -> None:
        self._stand = stand
        self._chance = chance
        self._tell = tell
        self.done: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        faults: list[Callable[[], Awaitable[None]]] = []
        while time.monotonic() < deadline:
            if not faults:
                faults = [
                    *[self.disturb] * 8,
                    *[self.cut_members] * 2,
                    self.swap_disk,
                    self.lose_ends,
                    self.damage,
                    self.damage,
                    self.replace,
                    self.black_out,
                ]
                faults.append(self.restore_etcd)
                self._chance.shuffle(faults)
            await faults.pop()()
            await asyncio.sleep(self._chance.uniform(0.5, 10.0))

    def _say(self, kind: str, text: str) -> None:
        self.done[kind] += 1
        self._tell(f"{kind} {text}")

    async def _short(self, least: float = 0.5, most: float = 8.0) -> None:
        await asyncio.sleep(self._chance.uniform(least, most))

    async def disturb(self) -> None:
        """Kill, stop, freeze or cut a broker, an etcd member, or one of each, for some seconds."""
        victims: list[Machine] = [self._chance.choice(self._stand.brokers)]
        if self._chance.random() < 0.3:
            victims = [self._chance.choice(self._stand.etcds)] + victims * self._chance.randint(0, 1)
        pause = self._chance.uniform(0.5, 8.0)
        for victim in victims:
            kinds = ["kill", "kill", "freeze", "stop"]
            if self._stand.hosts.cuttable:
                kinds += ["cut", "cut"]
                if victim in self._stand.brokers:
                    kinds += ["deafen", "separate", "isolate"]
            kind = self._chance.choice(kinds)
            self._say(kind, f"{victim.name} for {pause:.1f} s")
            await asyncio.to_thread(self._begin, victim, kind)
        await asyncio.sleep(pause)
        for victim in victims:
            await asyncio.to_thread(_finish, victim)

    def _begin(self, victim: Machine, kind: str) -> None:
        match kind:
            case "kill":
                victim.kill()
            case "stop":
                victim.stop()
            case "freeze":
                victim.freeze()
            case "cut":
                victim.cut()
            case "deafen":
                self._stand.deafen(victim)
            case "separate":
                self._stand.separate(victim)
            case "isolate":
                self._stand.isolate(victim)

    async def cut_members(self) -> None:
        """Disconnect some members of the groups, for longer than their sessions last or not."""
        if self._stand.hosts.cuttable:
            pause = self._chance.uniform(2.0, 14.0)
            self._say("cut members", f"for {pause:.1f} s")
            await asyncio.to_thread(self._stand.hosts.cut, ELSEWHERE)
            await asyncio.sleep(pause)
            await asyncio.to_thread(self._stand.hosts.mend, ELSEWHERE)

    async def _in_sync(self) -> None:
        async with asyncio.timeout(HEAL_SECONDS):
            await replicas_in_sync(self._stand.bootstrap)

    async def swap_disk(self) -> None:
        """A broker is killed, and returns with an empty disk."""
        await self._in_sync()
        broker = self._chance.choice(self._stand.brokers)
        self._say("swap disk", f"of {broker.name}")
        broker.kill()
        broker.wipe()
        await self._short()
        broker.start()

    async def lose_ends(self) -> None:
        """A broker is killed, and returns without the ends of some logs."""
        await self._in_sync()
        broker = self._chance.choice(self._stand.brokers)
        self._say("lose ends", f"of logs of {broker.name}")
        broker.kill()
        broker.lose_ends(self._chance)
        await self._short()
        broker.start()

    async def damage(self) -> None:
        """A broker is stopped cleanly, and returns without some files; another one may be killed or stopped then."""
        await self._in_sync()
        broker, other = self._chance.sample(self._stand.brokers, 2)
        await asyncio.to_thread(broker.stop)
        self._say("damage", f"on {broker.name}: {broker.lose_files(self._chance)}")
        await self._short(0.0, 3.0)
        broker.start()
        await self._short(0.0, 5.0)
        if self._chance.random() < 0.6:
            deed = self._chance.choice([other.kill, other.stop])
            self._tell(f"{deed.__name__} {other.name} meanwhile")
            await asyncio.to_thread(deed)
            await self._short()
            other.start()

    async def replace(self) -> None:
        """A broker is frozen, and replaced by one with the same node id and an empty disk; then it resumes.

        Meanwhile another one may be killed, which may lead: the replacement must not lead with a part of the records.
        """
        await self._in_sync()
        broker = self._chance.choice(self._stand.brokers)
        self._say("replace", f"{broker.name}, which resumes as a zombie")
        broker.freeze()
        replacement = self._stand.replace(broker)
        await self._short(3.0, 10.0)
        broker.thaw()
        await self._short(0.5, 5.0)
        if self._chance.random() < 0.5:
            other = self._chance.choice([each for each in self._stand.brokers if each is not replacement])
            self._tell(f"kill {other.name} meanwhile")
            other.kill()
            await self._short()
            other.start()
        self._stand.zombies.remove(broker)
        broker.kill()
        # If the zombie registered again before its replacement did, as it may on a busy machine, then the replacement
        # ends: its node id was in use.
        await eventually(f"{replacement.name} is replaced or not", replacement.has_begun, HEAL_SECONDS)
        _finish(replacement)

    async def black_out(self) -> None:
        """All brokers are killed or stopped, and return in any order. One of them may lose its disk, files or the ends
        of logs."""
        await self._in_sync()
        brokers = self._chance.sample(self._stand.brokers, len(self._stand.brokers))
        deeds = {each: self._chance.choice([each.kill, each.stop]) for each in brokers}
        loser = self._chance.choice([*brokers, None])
        text = ", ".join(f"{deed.__name__} {each.name}" for each, deed in deeds.items())
        for deed in deeds.values():
            await asyncio.to_thread(deed)
            await self._short(0.0, 2.0)
        if loser is not None and deeds[loser] == loser.kill and self._chance.random() < 0.5:
            text += f", {loser.name} loses ends of logs"
            loser.lose_ends(self._chance)
        elif loser is not None and deeds[loser] == loser.stop and self._chance.random() < 0.7:
            text += f", {loser.name} loses {loser.lose_files(self._chance)}"
        elif loser is not None:
            text += f", {loser.name} loses its disk"
            loser.wipe()
        self._chance.shuffle(brokers)
        self._say("black out", f"{text}; they return as {', '.join(each.name for each in brokers)}")
        for broker in brokers:
            await self._short(0.0, 6.0)
            broker.start()

    async def restore_etcd(self) -> None:
        """The data of etcd goes back to a backup; `barnabas cluster restore` stores what the brokers have kept."""
        self._say("restore etcd", "from a backup")
        for member in self._stand.etcds:
            member.kill()
        for member in self._stand.etcds:
            await asyncio.to_thread(member.back_up)
            member.start()
        # The metadata changes after the backup: at least by this topic.
        topic = f"after-backup-{self.done['restore etcd']}"
        await eventually(f"{topic} is created", lambda: self._create(topic), HEAL_SECONDS)
        # A broker that has not heard of it cannot know that etcd has lost it.
        await eventually(f"all brokers have {topic}", lambda: self._on_all(topic), HEAL_SECONDS)
        await self._short()
        for member in self._stand.etcds:
            member.kill()
        for member in self._stand.etcds:
            await asyncio.to_thread(member.go_back)
            member.start()
        await self._stand.halted(HEAL_SECONDS)
        for broker in self._stand.brokers:
            await asyncio.to_thread(broker.stop)
        async with asyncio.timeout(HEAL_SECONDS):
            await self._stand.restore()
        for broker in self._chance.sample(self._stand.brokers, len(self._stand.brokers)):
            broker.start()
            await self._short(0.0, 2.0)
        await eventually(f"{topic} is there", lambda: self._has(topic), HEAL_SECONDS)

    async def _on_all(self, topic: str) -> bool:
        running = [broker for broker in self._stand.brokers if broker.runs]
        return all((broker.data / f"{topic}-0").is_dir() for broker in running)

    async def _create(self, topic: str) -> bool:
        try:
            async with Admin(bootstrap_servers=self._stand.bootstrap) as admin:
                await admin.create_topics([NewTopic(topic, 1, 3)])
        except KafkaError:
            return await self._has(topic)
        return True

    async def _has(self, topic: str) -> bool:
        try:
            async with Admin(bootstrap_servers=self._stand.bootstrap) as admin:
                return topic in await admin.list_topics()
        except KafkaError:
            return False


def _finish(victim: Machine) -> None:
    victim.mend()
    victim.thaw()
    if not victim.runs:
        victim.kill()
        victim.start()


async def trial(
    directory: Path, seconds: float, seed: int, *, cuttable: bool, tell: Callable[[str], None] = print
) -> tuple[History, list[str]]:
    """Run a trial.

    Returns:
        The history of the load, and its anomalies.
    """
    began = time.monotonic()

    def say(text: str) -> None:
        tell(f"{time.monotonic() - began:7.1f} s  {text}")

    stand = Stand(directory, cuttable=cuttable, settings=_SETTINGS)
    history = History()
    try:
        await stand.start()
        await create_topics(stand.bootstrap)
        writer = Writer(stand.bootstrap, history, 200.0)
        readers = [Reader(stand.bootstrap, history, f"reader {number}") for number in range(2)]
        load = [asyncio.create_task(writer.run()), *(asyncio.create_task(reader.run()) for reader in readers)]
        served = await serves_transactions(stand.bootstrap)
        if not served:
            say("no transactions: the brokers do not serve them")
        with Workload(
            *(stand.bootstrap, FOREIGN, PARTITIONS, history),
            seed=seed,
            groups=GROUPS,
            enter=lambda member: stand.hosts.enter(ELSEWHERE) if member == 1 else None,
            transactional=2 * served,
            rate=100.0,
        ) as workload:
            nemesis = Nemesis(stand, random.Random(seed), say)
            await nemesis.run(seconds)
            say("healing")
            await asyncio.to_thread(stand.heal)
            settling = asyncio.create_task(_settle(workload, say))
            writer.stopping = True
            async with asyncio.timeout(HEAL_SECONDS):
                await load[0]
                say("writer done")
                await replicas_in_sync(stand.bootstrap)
                say("every replica is in sync")
                wrong = await group_at_end(stand.bootstrap)
            for reader in readers:
                reader.stopping = True
            await asyncio.wait_for(asyncio.gather(*load[1:]), HEAL_SECONDS)
            await settling
            await asyncio.to_thread(workload.finish, HEAL_SECONDS)
        await asyncio.wait_for(read_all(stand.bootstrap, history), HEAL_SECONDS)
        report = await asyncio.to_thread(check, history)
        transactions = Counter(each.outcome.value for each in history.operations if each.kind is Kind.TXN)
        say(
            f"{with_outcome(history, Outcome.OK)} records acknowledged, {with_outcome(history, Outcome.UNKNOWN)} of "
            f"unknown fate, {with_outcome(history, Outcome.OK, Kind.COMMITTED)} assignments, "
            f"{_group_figures(stand, history)}, "
            f"transactions {dict(transactions)}, {report.operations} operations, faults {dict(nemesis.done)}"
        )
        return history, wrong + report.lines()
    except Exception as error:
        # Now: what follows may wait for threads of the load.
        say(f"failed: {type(error).__name__}: {error}")
        faulthandler.dump_traceback()
        raise
    finally:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.to_thread(stand.close)


async def _settle(workload: Workload, tell: Callable[[str], None]) -> None:
    """Wait until librdkafka's groups have settled, or do not in time."""
    settled = await asyncio.to_thread(workload.settle, HEAL_SECONDS)
    tell("every group has settled" if settled else "a group has not settled")


def _group_figures(stand: Stand, history: History) -> str:
    """Return what happened to librdkafka's groups, in figures."""
    logs = [path.read_bytes() for path in {broker.output for broker in stand.brokers}]
    changes = {name: sum(log.count(line) for log in logs) for name, line in (("up", _UPGRADED), ("down", _DOWNGRADED))}
    return (
        f"{len(GROUPS)} groups with {sum(plan.members for plan in GROUPS)} members, "
        f"{with_outcome(history, Outcome.OK, Kind.SUBSCRIBE)} lives, "
        f"{with_outcome(history, Outcome.OK, Kind.GAIN)} gains, "
        f"{with_outcome(history, Outcome.OK, Kind.COMMIT)} commits acknowledged and "
        f"{with_outcome(history, Outcome.UNKNOWN, Kind.COMMIT)} refused or without answer, "
        f"{sum(NO_RETURN in each.error for each in history.operations)} calls that did not return, "
        f"{changes['up']} upgrades and {changes['down']} downgrades"
    )


async def create_topics(bootstrap: str) -> None:
    """Create the topics once all brokers are registered."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        async with asyncio.timeout(HEAL_SECONDS):
            while True:
                if len((await admin.describe_cluster()).brokers) == len(BROKERS):
                    break
                await asyncio.sleep(0.1)
        await admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in (TOPIC, FOREIGN)])
    # The first request creates __consumer_offsets, which needs all brokers: now, while all are registered.
    async with Consumer(bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        await consumer.committed(TopicPartition(TOPIC, 0))


async def replicas_in_sync(bootstrap: str) -> None:
    """Wait until every partition has all its replicas in sync."""
    while True:
        try:
            async with Admin(bootstrap_servers=bootstrap) as admin:
                # Without transactions `__transaction_state` does not exist.
                kept = set(await admin.list_topics(internal=True)) & {OFFSETS_TOPIC, TRANSACTIONS_TOPIC}
                described = await admin.describe_topics([TOPIC, FOREIGN, *sorted(kept)])
                if all(
                    len(p.isr) == len(p.replicas) and p.leader is not None
                    for t in described
                    for p in t.partitions.values()
                ):
                    return
        except KafkaError:
            pass
        await asyncio.sleep(0.2)


async def group_at_end(bootstrap: str) -> list[str]:
    """Wait until the group has read everything."""
    places = [TopicPartition(TOPIC, n) for n in range(PARTITIONS)]
    async with Consumer(bootstrap_servers=bootstrap, group_id=GROUP, enable_auto_commit=False) as consumer:
        consumer.assign(places)
        ends: dict[TopicPartition, int] = {}
        found: dict[TopicPartition, int] = {}
        reason = ""
        try:
            async with asyncio.timeout(HEAL_SECONDS / 2):
                while not ends or any(found.get(where, -1) < ends[where] for where in places):
                    await asyncio.sleep(0.2)
                    try:
                        ends = await consumer.end_offsets(places)
                        found = {where: await consumer.committed(where) or 0 for where in places}
                    except KafkaError as error:
                        reason = f", the last error: {error}"
        except TimeoutError:
            return [f"the group did not reach the end: {found} of {ends}{reason}"]
        return []


def main() -> int:
    """Run a trial, and print the anomalies."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.nemesis")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--keep", type=Path, help="keep data and logs in this directory")
    arguments = parser.parse_args()
    cuttable = namespaces_work()
    print(f"seed {arguments.seed}" + ("" if cuttable else "; no network is cut, for that needs root and ip"))
    directory = arguments.keep or Path(tempfile.mkdtemp(prefix="barnabas-nemesis-"))
    directory.mkdir(parents=True, exist_ok=True)
    _, wrong = asyncio.run(trial(directory, arguments.minutes * 60, arguments.seed, cuttable=cuttable))
    for line in wrong[:50]:
        print(line)
    print(f"{len(wrong)} anomalies; logs in {directory}" if wrong else "no anomaly")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
