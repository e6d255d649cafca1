"""The port of metadata stores: batches of events, numbered without a gap."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from barnabas_broker.cluster import ClusterError
from barnabas_broker.cluster.image import Event


class StoreError(ClusterError):
    """Events cannot be stored or read; the text says where and why."""


class StoreUnavailable(StoreError):
    """The store does not answer. It is unknown whether events were stored; if so, the watch delivers them."""


class StoreFenced(StoreError):
    """This broker may not write: its registration is over, or it is not the controller any more."""


class StoreLost(StoreError):
    """The store lacks batches that this broker has applied, or has others in their place. This broker must not serve
    or write any more."""


class Restored(NamedTuple):
    """A restore of the metadata from a saved image: a new history of the cluster, which goes on after `sequence`."""

    id: str
    sequence: int

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "Restored":
        """Read what `_asdict` has given.

        Raises:
            ValueError, KeyError, TypeError: it is not that.
        """
        name, sequence = fields["id"], fields["sequence"]
        if not isinstance(name, str) or type(sequence) is not int:
            raise ValueError(f"restored {fields!r}")
        return cls(name, sequence)


class LoadedMetadata(NamedTuple):
    """The whole content of a store, as events that turn an empty image into the present one.

    Attributes:
        sequence: the number of the last batch.
        events: in their order.
    """

    sequence: int
    events: Sequence[Event]


class EventBatch(NamedTuple):
    """Events that were stored in one step: the batch after `sequence` - 1."""

    sequence: int
    events: Sequence[Event]


class MetadataStore(Protocol):
    """Stores batches of events, numbered without a gap. Several brokers may share one."""

    async def load(self) -> LoadedMetadata:
        """Read everything.

        Raises:
            StoreError: the content cannot be read.
        """

    async def append(self, events: Sequence[Event], expected: int, *, as_controller: bool = False) -> bool:
        """Store events as the batch after `expected`; all of them, or none.

        Args:
            events: at least one.
            expected: the number of the last batch in the image that they were decided on.
            as_controller: store them only if this broker is the controller.

        Returns:
            Whether they are stored. If not, another broker was first, and the watch delivers its batch.

        Raises:
            StoreUnavailable: it is unknown whether they are stored.
            StoreFenced: this broker may not write.
            StoreError: they are not stored.
        """

    async def newest(self) -> int:
        """The number of the last batch, of any broker.

        Raises:
            StoreError: the store does not answer.
        """

    def watch(self) -> AsyncIterator[EventBatch | LoadedMetadata]:
        """Yield batches after the last load, for ever, across lost connections. They may include this broker's own.

        After too long an interruption the whole content is delivered instead (`LoadedMetadata`).

        Raises:
            StoreError: the content cannot be read.
        """

    async def close(self) -> None:
        """Close files and connections."""
