"""Partitions of which a ``read_committed`` group gets nothing, because all records were in aborted transactions, and
those of which another group gets records of aborted transactions. Pure.

Found from regular looks at the batches that were written since the look before. About 200 bytes are kept for each of
:data:`~.watched.MOST` partitions; nothing is done per record.
"""

from typing import Final

from barnabas_broker.groups.watched import Lasting

#: Transactional ids of a partition that are kept.
_MOST_IDS: Final = 5


#: So many aborted transactions are more than an accident.
_FEW: Final = 3


class AbortedRead(Lasting):
    """A partition in which a group has passed markers of aborted transactions.

    Attributes:
        since: the time of the first look.
        offset: the committed offset at the last look.
        transactions: the number of aborted transactions since the first look.
        told: how many of them were reported.
        transactional_ids: of some of them, as far as they are known.
    """

    __slots__ = ("offset", "told", "transactional_ids", "transactions")

    def __init__(self, now: float, offset: int) -> None:
        super().__init__(now)
        self.offset = offset
        self.transactions = self.told = 0
        self.transactional_ids: tuple[str, ...] = ()

    def add(self, transactions: int, transactional_id: str | None) -> None:
        """Further ones were passed."""
        self.transactions += transactions
        if transactional_id is not None:
            self.transactional_ids = tuple(dict.fromkeys((*self.transactional_ids, transactional_id)))[:_MOST_IDS]

    def is_due(self, now: float, patience: float) -> bool:
        """See :class:`.Lasting`; only if there are some more."""
        return self.transactions >= self.told + _FEW and super().is_due(now, patience)


class OnlyAborted(Lasting):
    """A partition in which only aborted records were seen.

    Attributes:
        since: the time of the first look.
        until: the time of the last look at which there were such records.
        records: how many there were.
        end: the offset after them.
        transactional_ids: of their transactions, as far as they are known.
    """

    __slots__ = ("end", "records", "transactional_ids", "until")

    def __init__(self, now: float, offset: int) -> None:
        super().__init__(now)
        self.until = now
        self.records, self.end = 0, offset
        self.transactional_ids: tuple[str, ...] = ()

    def add(self, records: int, end: int, transactional_ids: tuple[str, ...]) -> None:
        """Further ones were found."""
        self.records += records
        self.end = end
        known = dict.fromkeys((*self.transactional_ids, *transactional_ids))
        self.transactional_ids = tuple(known)[:_MOST_IDS]

    def is_due(self, now: float, patience: float) -> bool:
        """See :class:`.Lasting`; only if the last look has found some."""
        return self.until == now and super().is_due(now, patience)
