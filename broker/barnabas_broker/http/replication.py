"""Metrics of a broker in a cluster: its registration, and the replication of the partitions that it leads.

Counts of partitions have the names that the Prometheus JMX exporter gives Kafka's own (as Strimzi configures it), and
their meanings: those of kafka.server ReplicaManager are about the partitions that this broker leads, those of
kafka.controller are 0 on every broker but the controller.
"""

from collections.abc import Iterator

from barnabas_broker.cluster.image import Image
from barnabas_broker.cluster.lifecycle import BrokerLifecycle
from barnabas_broker.http.text import COUNTER, GAUGE, PIECE, one
from barnabas_broker.http.view import View


def replication(view: View, image: Image) -> Iterator[str]:
    """All of these metrics, in pieces."""
    if view.lifecycle is not None:
        yield from _registration(view, view.lifecycle)
    yield from one("barnabas_controller_id", GAUGE, "Node id of the controller, -1 for none.", image.controller_id)
    yield from _led(view)
    yield from _controlled(view, image)


def _registration(view: View, lifecycle: BrokerLifecycle) -> Iterator[str]:
    for name, description, value in (
        ("barnabas_registered", "1 while this broker has a registration in the cluster.", int(lifecycle.lease != 0)),
        (
            "barnabas_serving",
            "1 while this broker may lead and coordinate: its lease surely lives, and the cluster knows of it.",
            int(view.cluster.may_serve()),
        ),
        (
            "barnabas_broker_epoch",
            "Which life of this broker it is, as the cluster counts; -1 for none.",
            lifecycle.epoch,
        ),
        ("barnabas_lease_age_seconds", "Since the last renewal of the lease that etcd answered.", lifecycle.lease_age),
        (
            "barnabas_lease_remaining_seconds",
            "For how long this broker may act if its lease is not renewed.",
            lifecycle.lease_remaining,
        ),
    ):
        yield from one(name, GAUGE, description, value)


def _led(view: View) -> Iterator[str]:
    partitions = leaders = under_replicated = under_min_isr = at_min_isr = 0
    for partitions, replica in enumerate(view.replicas.each(), 1):
        if partitions % PIECE == 0:
            yield ""
        if replica.leading is not None:
            info = replica.info
            leaders += 1
            under_replicated += len(info.isr) < len(info.replicas)
            under_min_isr += len(info.isr) < replica.min_isr
            at_min_isr += len(info.isr) == replica.min_isr
    replicas, prefix = view.replicas, "kafka_server_replicamanager_"
    for name, kind, description, value in (
        ("partitioncount", GAUGE, "Partitions that this broker keeps.", partitions),
        ("leadercount", GAUGE, "Partitions that this broker leads.", leaders),
        (
            "underreplicatedpartitions",
            GAUGE,
            "Of those, partitions with a replica that is not in sync.",
            under_replicated,
        ),
        ("underminisrpartitioncount", GAUGE, "Of those, partitions that acks=all cannot write to.", under_min_isr),
        ("atminisrpartitioncount", GAUGE, "Of those, partitions that can spare no replica for acks=all.", at_min_isr),
        ("isrshrinks_total", COUNTER, "How often an ISR of those became smaller.", replicas.isr_shrinks),
        ("isrexpands_total", COUNTER, "How often an ISR of those grew.", replicas.isr_expands),
    ):
        yield from one(prefix + name, kind, description, value)


def _controlled(view: View, image: Image) -> Iterator[str]:
    active = image.controller_id == view.node_id and view.cluster.may_serve()
    partitions = offline = not_preferred = 0
    if active:
        for topic in image.topics.values():
            for number, info in enumerate(topic.partitions, partitions + 1):
                offline += info.leader < 0
                not_preferred += info.replicas[:1] != (info.leader,)
                if number % PIECE == 0:
                    yield ""
            partitions += len(topic.partitions)
    prefix = "kafka_controller_kafkacontroller_"
    for name, description, value in (
        ("activecontrollercount", "1 at the controller.", int(active)),
        ("globalpartitioncount", "Partitions of the cluster.", partitions),
        ("offlinepartitionscount", "Partitions without a leader.", offline),
        ("preferredreplicaimbalancecount", "Partitions that their first replica does not lead.", not_preferred),
    ):
        yield from one(prefix + name, GAUGE, description, value)
