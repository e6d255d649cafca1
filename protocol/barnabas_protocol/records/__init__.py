"""Record batches (magic 2). Import from here; the modules inside import each other, never this face.

- :mod:`.batches`: headers, checks and restamping. A broker needs nothing else: to it a batch is opaque bytes.
- :mod:`.builder`: records into a batch, for producers; :mod:`.columns`: many at once.
- :mod:`.iteration`: records out of a batch, for consumers.
- :mod:`.compression`: the five codecs, with a limit for what comes out.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from barnabas_protocol.records.batches import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    UnsupportedMagic,
    check_batch,
    check_crc,
    flaw,
    iter_batches,
    read_header,
    restamp,
    restamp_log_append_time,
)
from barnabas_protocol.records.compression import Codec, RecordsTooLarge, compress, decompress
from barnabas_protocol.records.iteration import (
    MAX_DECOMPRESSED,
    ControlType,
    Record,
    RecordsSummary,
    control_record_type,
    decode_records,
    decode_rows,
    inspect_records,
    iter_records,
    iter_rows,
    read_headers,
)

if TYPE_CHECKING:
    from barnabas_protocol.records.builder import BatchBuilder, build_batch
    from barnabas_protocol.records.columns import RecordColumns
    from barnabas_protocol.records.fields import Headers
else:
    #: The modules that only producers need: they are imported when a program first uses one of these names (PEP 562).
    _LATER = {"BatchBuilder": "builder", "build_batch": "builder", "RecordColumns": "columns", "Headers": "fields"}

    def __getattr__(name):
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, getattr(import_module(f"{__name__}.{_LATER[name]}"), name))


__all__ = [
    "HEADER_SIZE",
    "MAX_DECOMPRESSED",
    "BatchBuilder",
    "BatchHeader",
    "Codec",
    "ControlType",
    "CorruptBatch",
    "Headers",
    "Record",
    "RecordColumns",
    "RecordsSummary",
    "RecordsTooLarge",
    "UnsupportedMagic",
    "build_batch",
    "check_batch",
    "check_crc",
    "compress",
    "control_record_type",
    "decode_records",
    "decode_rows",
    "decompress",
    "flaw",
    "inspect_records",
    "iter_batches",
    "iter_records",
    "iter_rows",
    "read_header",
    "read_headers",
    "restamp",
    "restamp_log_append_time",
]
