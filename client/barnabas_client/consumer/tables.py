"""Decodes fetched chunks to Arrow record batches. It needs the extra `arrow`."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from barnabas_client.columns import SCHEMA, iter_columns, table_of
from barnabas_client.consumer.fetched import Chunk, Unpacked, corrupt
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import DecodeError

#: Records that are decoded at a time: some 10 ms of the event loop's time.
_MOST: Final = 32_768


def unpack_tables(
    tp: TopicPartition, chunks: Sequence[Chunk], position: int, *, check_crcs: bool
) -> Iterator[Unpacked]:
    """Decode chunks of one leader epoch from `position` on, as :func:`~barnabas_client.consumer.fetched.unpack` does
    one: each part has one record batch instead of records, or none."""
    batches = [chunk.batch for chunk in chunks if chunk.batch is not None]
    before = None
    try:
        for part in iter_columns(batches, position, check_crcs=check_crcs, most=_MOST):
            if before is not None:
                yield before
            position = max(position, part.end)
            before = Unpacked([table_of(*tp, part)] if len(part.offsets) else [], position)
    except DecodeError as error:
        if before is not None:
            yield before
        yield Unpacked([], position, corrupt(tp, position, error))
        return
    last = chunks[-1]
    if last.error is not None:
        if before is not None:
            yield before
        yield Unpacked([], last.end, last.error)
    else:
        # Chunks without records for the program may come after those with some.
        yield Unpacked([] if before is None else before.records, last.end)


def joined(batches: Sequence[Any]) -> Any:
    """One table of record batches, which keeps them as they are."""
    return pa.Table.from_batches(batches, SCHEMA)
