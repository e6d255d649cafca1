"""Compaction of a log in memory, with the functions that the cleaner uses."""

from collections.abc import Sequence

from barnabas_broker.storage.compaction import CleanedTransactions, collect, filter_batch
from barnabas_broker.storage.transaction_index import AbortedTransaction
from barnabas_protocol.records import BatchHeader, ControlType, control_record_type, decode_records, read_header

#: Milliseconds that tombstones are kept after they have been seen.
_RETENTION_MS = 1_000
_MAX_BYTES = 1 << 30


def compacted(batches: Sequence[bytes], *, tombstones: bool) -> list[bytes]:
    """The batches without the records that later ones replace.

    As in a real log, batches from the first one of an open transaction on stay as they are.

    Args:
        batches: the log.
        tombstones: whether tombstones are kept; else their retention is over.
    """
    first_open, aborted = _transactions(batches)
    at = next((at for at, batch in enumerate(batches) if read_header(batch).base_offset >= first_open), len(batches))
    cleaned, rest = list(batches[:at]), list(batches[at:])
    cleaned = _clean(cleaned, aborted, 0)
    if not tombstones:
        cleaned = _clean(cleaned, aborted, _RETENTION_MS + 1)
    return cleaned + rest


def _transactions(batches: Sequence[bytes]) -> tuple[float, list[AbortedTransaction]]:
    """The first offset of an open transaction, infinite if there is none, and the aborted transactions."""
    opened: dict[int, int] = {}
    aborted: list[AbortedTransaction] = []
    for batch in batches:
        header = read_header(batch)
        if header.is_control:
            first = opened.pop(header.producer_id, None)
            if first is not None and control_record_type(decode_records(batch)[0]) is ControlType.ABORT:
                aborted.append(AbortedTransaction(header.producer_id, first, header.last_offset, header.next_offset))
        elif header.is_transactional:
            opened.setdefault(header.producer_id, header.base_offset)
    return min(opened.values(), default=float("inf")), aborted


def _clean(batches: Sequence[bytes], aborted: Sequence[AbortedTransaction], now_ms: int) -> list[bytes]:
    latest: dict[bytes, int] = {}
    transactions = CleanedTransactions(aborted)
    headers = [read_header(batch) for batch in batches]
    for header, batch in zip(headers, batches, strict=True):
        if not transactions.may_discard(header, batch) and not header.is_control:
            collect(latest, header, batch, _MAX_BYTES)
    transactions = CleanedTransactions(aborted)
    last = {header.producer_id: header.last_offset for header in headers}

    def is_last(header: BatchHeader) -> bool:
        return header.producer_id >= 0 and last[header.producer_id] == header.last_offset

    left = []
    for header, batch in zip(headers, batches, strict=True):
        kept = filter_batch(
            header,
            batch,
            latest,
            now_ms=now_ms,
            delete_retention_ms=_RETENTION_MS,
            max_bytes=_MAX_BYTES,
            keep_empty=is_last,
            may_discard=transactions.may_discard(header, batch),
        )
        if kept is not None:
            left.append(bytes(kept))
    return left
