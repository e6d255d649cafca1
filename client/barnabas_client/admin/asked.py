"""Items of an admin operation that one broker is asked about. Pure."""

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from barnabas_client.admin.refusals import HasCode, failure, label
from barnabas_client.network.metadata import Cluster, Node
from barnabas_protocol.errors import KafkaError

K = TypeVar("K")
V = TypeVar("V")
Row = TypeVar("Row", bound=HasCode)


class Asked(NamedTuple, Generic[K]):
    """Items that one broker is asked about.

    Attributes:
        what: what is done, for error messages, such as "describe group".
        items: the items.
        node: the broker, by node id; -1 for any.
        cluster: the cluster in which it was found.
    """

    what: str
    items: list[K]
    node: int
    cluster: Cluster

    @property
    def broker(self) -> Node | None:
        """The broker; None for any."""
        return self.cluster.brokers.get(self.node)

    def outcomes(
        self, rows: Iterable[tuple[K, Row]], result: Callable[[Row], V | KafkaError]
    ) -> dict[K, V | KafkaError]:
        """The error of each row of the response, or its result.

        Args:
            rows: the rows by what they are about.
            result: makes the result of a row without an error.
        """
        return {item: failure(row, label(self.what, item)) or result(row) for item, row in rows}
