"""Responses as plain data without values that differ between runs: ids, ports, times, and the wording of messages."""

import re
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from barnabas_protocol.errors import DecodeError, ErrorCode
from barnabas_protocol.messages.describe_quorum import (
    DescribeQuorumResponsePartition,
    QuorumListener,
    QuorumReplicaState,
)
from barnabas_protocol.records import decode_records
from barnabas_protocol.records.batches import iter_batches
from barnabas_protocol.schema import Struct
from barnabas_protocol.wire import Buffer

#: Never compared.
IGNORED: Final = frozenset({"throttle_time_ms", "finalized_features_epoch", "total_bytes", "usable_bytes"})
#: Messages: the wording is not compared. Without an error code, whether there is a message is compared.
TEXTS: Final = frozenset({"error_message", "acknowledge_error_message", "batch_index_error_message", "documentation"})
#: Numbers that a broker generates.
MADE_UP: Final = frozenset({"session_id", "partition_size", "subscription_id"})
#: Values of the quorum of controllers that are those of one run of Apache Kafka, by structure.
OF_A_RUN: Final = {
    DescribeQuorumResponsePartition: frozenset({"leader_epoch", "high_watermark"}),
    QuorumListener: frozenset({"port"}),
    QuorumReplicaState: frozenset({"log_end_offset", "replica_directory_id"}),
}
#: Fields that identify the elements of a list; the first one that an element has is used.
IDENTITIES: Final = (
    "api_key",
    "resource_name",
    "partition_index",
    "partition",
    "index",
    "node_id",
    "broker_id",
    "group_instance_id",
    "group_id",
    "topic",
    "name",
    "key",
    "topic_id",
    "log_dir",
    "partition_id",
    "user",
    "topic_name",
    "member_id",
)
#: Lists of numbers or names whose order is not significant.
UNORDERED: Final = frozenset({"partitions", "requested_metrics", "subscribed_topic_names"})
#: Lists of structures whose order is significant.
ORDERED: Final = frozenset({"synonyms", "aborted_transactions"})
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CLUSTER_ID: Final = "cluster_id"
#: Milliseconds by which a timestamp may differ from now to count as now.
_NOW: Final = 3_600_000


class Normaliser:
    """Converts responses to data that two brokers agree on.

    Args:
        port: the broker's port.
        saved: values that the scenario has saved; they are replaced by their names.

    Attributes:
        texts: whether the wording of messages is kept.
    """

    def __init__(self, port: int, saved: Mapping[str, Any]) -> None:
        self._port = port
        self._saved = saved
        self.texts = False

    def normalise(self, answer: Any, name: str = "") -> Any:
        """Return a response as JSON values; lists of structures become objects, because their order is irrelevant."""
        if isinstance(answer, Struct):
            left_out = IGNORED | TEXTS if getattr(answer, "error_code", 0) and not self.texts else IGNORED
            of_a_run = OF_A_RUN.get(type(answer), ())
            return {
                f.name: f"<{f.name}>" if value and f.name in of_a_run else self.normalise(value, f.name)
                for f, value in ((f, getattr(answer, f.name)) for f in answer.FIELDS if f.name not in left_out)
            }
        if isinstance(answer, list):
            if name not in ORDERED and any(isinstance(one, Struct) for one in answer):
                return self._keyed(answer)
            return [self.normalise(one, name) for one in (sorted(answer) if name in UNORDERED else answer)]
        if isinstance(answer, bool) or answer is None:
            return answer
        if isinstance(answer, int):
            return self._number(answer, name)
        if isinstance(answer, str):
            return self._text(answer, name)
        if isinstance(answer, float):
            return answer
        return self._bytes(answer, name)

    def _keyed(self, answer: list[Any]) -> dict[str, Any]:
        elements = []
        for one in answer:
            identity = next((key for key in IDENTITIES if getattr(one, key, None) not in (None, "")), None)
            text = "" if identity is None else str(self.normalise(getattr(one, identity), identity))
            elements.append((text, self.normalise(one)))
        elements.sort(key=lambda element: (element[0], repr(element[1])))
        keyed: dict[str, Any] = {}
        counts = Counter[str]()
        for text, content in elements:
            counts[text] += 1
            keyed[text if counts[text] == 1 else f"{text} #{counts[text]}"] = content
        return keyed

    def _number(self, value: int, name: str) -> Any:
        if name == "producer_id" and value > 0:  # is it the one of an earlier answer?
            return next((f"<{key}>" for key, one in self._saved.items() if one == value), "<producer_id>")
        if name in MADE_UP and (value > 0 or (value and name == "subscription_id")):
            return f"<{name}>"
        if name == "port" and value == self._port:
            return "<port>"
        if name == "error_code" or name.endswith("_error_code"):
            return ErrorCode.of(value).name
        if abs(value - time.time() * 1000) < _NOW:
            return "<now>"
        return value

    def _text(self, value: str, name: str) -> str:
        if name in TEXTS and not self.texts:
            return "<text>" if value else ""
        if name == _CLUSTER_ID:
            return "<cluster>" if value else ""
        if name == "log_dir":
            return "<directory>"
        for known in sorted((one for one in self._saved.items() if _names(one[1])), key=lambda one: -len(one[1])):
            value = value.replace(known[1], f"<{known[0]}>")
        return _UUID.sub("<uuid>", value)

    def _bytes(self, value: Buffer, name: str) -> Any:
        data = bytes(value)
        if name == "records":
            return self._records(data)
        known = next((key for key, one in self._saved.items() if one == data and data), None)
        if known is not None:
            return f"<{known}>"
        if len(data) == 16 and name.endswith("topic_id"):
            return "<none>" if data == bytes(16) else "<uuid>"
        for key, one in self._saved.items():
            if _names(one):
                data = data.replace(one.encode(), f"<{key}>".encode())
        text = data.decode("latin-1")
        return text if text.isprintable() else f"0x{data.hex()}"

    def _records(self, data: bytes) -> Any:
        batches = []
        try:
            for header, batch in iter_batches(data, partial_ok=True):
                batches.append(
                    {
                        "base_offset": header.base_offset,
                        "leader_epoch": header.leader_epoch,
                        "attributes": header.attributes,
                        "producer_id": self._number(header.producer_id, "producer_id"),
                        "producer_epoch": header.producer_epoch,
                        "base_sequence": header.base_sequence,
                        "base_timestamp": self._number(header.base_timestamp, ""),
                        "max_timestamp": self._number(header.max_timestamp, ""),
                        "records": [
                            # The type of a control record, and the coordinator's epoch, are binary numbers.
                            [one.offset, _hex(one.key), _hex(one.value)]
                            if header.is_control
                            else [one.offset, _plain(one.key), _plain(one.value)]
                            for one in decode_records(batch)
                        ],
                    }
                )
        except DecodeError as error:
            batches.append({"broken": str(error)})
        return batches


def _names(value: Any) -> bool:
    return isinstance(value, str) and len(value) > 4


def _plain(data: Buffer | None) -> str | None:
    return None if data is None else bytes(data).decode("latin-1")


def _hex(data: Buffer | None) -> str | None:
    return None if data is None else bytes(data).hex()
