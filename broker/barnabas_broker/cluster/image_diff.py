"""The difference of two images as events, for a broker that has missed the events. Pure."""

from barnabas_broker.cluster.acls import acl_difference
from barnabas_broker.cluster.image import (
    CONFIGURED,
    BrokerFenced,
    BrokerRegistered,
    ControllerElected,
    Event,
    Image,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
    TopicInfo,
)
from barnabas_broker.cluster.quotas import quota_difference


def difference(old: Image, new: Image) -> list[Event]:
    """Events that turn `old`, an earlier image of the same cluster, into `new`."""
    events: list[Event] = [
        BrokerFenced(node, broker.epoch)
        for node, broker in old.brokers.items()
        if node not in new.brokers and node not in new.fenced
    ]
    for node, fenced in new.fenced.items():
        if old.fenced.get(node) != fenced:
            if old.brokers.get(node) != fenced.info:
                events.append(BrokerRegistered.of(fenced.info))
            events.append(BrokerFenced(node, fenced.info.epoch, fenced.stopped))
    for node, broker in new.brokers.items():
        if old.brokers.get(node) != broker:
            events.append(BrokerRegistered.of(broker))
    if old.controller_id != new.controller_id:
        events.append(ControllerElected(new.controller_id))
    for name, topic in old.topics.items():
        if name not in new.topics or new.topics[name].topic_id != topic.topic_id:
            events.append(TopicDeleted(name))
    for name, topic in new.topics.items():
        events += _topic(old.topics.get(name), topic)
    for kind, place in CONFIGURED.items():
        then, now = getattr(old, place), getattr(new, place)
        events += [kind(name, {}) for name in then if name not in now]
        events += [kind(name, configs) for name, configs in now.items() if then.get(name) != configs]
    events += new.users.events_from(old.users)
    events += acl_difference(old.acls, new.acls)
    events += quota_difference(old.quotas, new.quotas)
    if old.next_producer_id != new.next_producer_id:
        events.append(ProducerIdsAllocated(new.next_producer_id))
    return events


def _topic(old: TopicInfo | None, new: TopicInfo) -> list[Event]:
    if old is None or old.topic_id != new.topic_id:
        return [TopicCreated(new.name, new.topic_id, new.partitions, new.configs)]
    events: list[Event] = []
    have = len(old.partitions)
    if old.partitions != new.partitions:
        if len(new.partitions) > have:
            events.append(PartitionsAdded(new.name, new.partitions[have:]))
        events += [
            PartitionChanged(new.name, index, now)
            for index, (then, now) in enumerate(zip(old.partitions, new.partitions, strict=False))
            if then != now
        ]
    if old.configs != new.configs:
        events.append(TopicConfigured(new.name, new.configs))
    return events
