"""The leader of a partition, for errors that say that this broker is not it (KIP-951): the client goes there without
asking for metadata."""

from typing import NamedTuple

from barnabas_broker.handlers.context import RequestContext
from barnabas_protocol.errors import ErrorCode


class LeaderHint(NamedTuple):
    """The leader of a partition, with its address on the listener that the client uses."""

    node_id: int
    epoch: int
    host: str
    port: int
    rack: str | None


def leader_hint(context: RequestContext, code: int, topic: str | bytes, partition: int) -> LeaderHint | None:
    """The leader to name in an error.

    Args:
        context: the request.
        code: the error of the partition.
        topic: its name or id; the client may use it.
        partition: its number.

    Returns:
        None if the error is another one, if no other broker leads the partition, or if the leader does not have the
        client's listener.
    """
    if code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return None
    image, listener = context.services.cluster.image, context.listener
    known = image.topics.get((image.names.get(topic) if isinstance(topic, bytes) else topic) or "")
    if known is None or not 0 <= partition < len(known.partitions):
        return None
    info = known.partitions[partition]
    broker = image.brokers.get(info.leader)
    if broker is None or info.leader == context.services.node_id or listener not in broker.endpoints:
        return None
    return LeaderHint(broker.node_id, info.leader_epoch, *broker.endpoints[listener], broker.rack)
