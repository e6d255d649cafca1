"""Cache of the encoded partitions of large topics, which Metadata shows to many clients. Pure."""

from typing import Final, NamedTuple

from barnabas_broker.cluster.image import Image, TopicInfo
from barnabas_protocol.messages.metadata import MetadataResponsePartition
from barnabas_protocol.wire import Encoded

#: Bytes of all lists together. A partition with three replicas takes 50 to 60.
MOST_BYTES: Final = 16 << 20


class _Kept(NamedTuple):
    """The partitions, and the parts of the image that they were made of."""

    image: tuple[object, object]
    partitions: Encoded[MetadataResponsePartition]


class PartitionLists:
    """Encoded partitions of topics by topic, listener and version.

    A list is used as long as neither the topic's partitions nor the brokers have changed. When there is no room, the
    list that was not used for longest is forgotten.

    Args:
        most: bytes that are kept.
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._bytes = 0
        #: Those that were not used for longest come first.
        self._lists: dict[tuple[bytes, str, int], _Kept] = {}

    def find(
        self, image: Image, topic: TopicInfo, listener: str, version: int
    ) -> Encoded[MetadataResponsePartition] | None:
        """The partitions of a topic as they are in `image`; None if they are not kept."""
        key = topic.topic_id, listener, version
        kept = self._lists.pop(key, None)
        if kept is None:
            return None
        if kept.image[0] is not topic.partitions or kept.image[1] is not image.brokers:
            self._bytes -= len(kept.partitions.content)
            return None
        self._lists[key] = kept
        return kept.partitions

    def keep(
        self,
        image: Image,
        topic: TopicInfo,
        listener: str,
        version: int,
        partitions: Encoded[MetadataResponsePartition],
    ) -> None:
        """Keep the partitions of a topic as they are in `image`."""
        self._forget((topic.topic_id, listener, version))
        self._lists[topic.topic_id, listener, version] = _Kept((topic.partitions, image.brokers), partitions)
        self._bytes += len(partitions.content)
        while self._bytes > self._most:
            self._forget(next(iter(self._lists)))

    def _forget(self, key: tuple[bytes, str, int]) -> None:
        if (kept := self._lists.pop(key, None)) is not None:
            self._bytes -= len(kept.partitions.content)
