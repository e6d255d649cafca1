"""An error code in the right place of every response, in every version that is served."""

from typing import Any, Final, cast

from barnabas_broker.handlers.table import join
from barnabas_broker.testing.refusals import refusal
from barnabas_broker.testing.seen import first_error
from barnabas_protocol.codec import decode_request_header, decode_response, encode_request
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import FetchRequest
from barnabas_protocol.messages.list_groups import ListGroupsRequest
from barnabas_protocol.messages.metadata import MetadataRequest
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Struct, Versions, WireType
from barnabas_protocol.wire import Buffer
from tests.lots import in_lots

TABLE: Final = join()
SERVED: Final = [(key, version) for key, route in TABLE.items() for version in route.served]
CODE: Final = ErrorCode.INVALID_REQUEST

#: Where the code goes: arrays on the way, and the versions if it is not all of them.
PLACES: Final[dict[ApiKey, dict[str, str]]] = {
    ApiKey.PRODUCE: {"0+": "responses.partition_responses"},
    ApiKey.FETCH: {"0+": "responses.partitions"},
    ApiKey.LIST_OFFSETS: {"0+": "topics.partitions"},
    ApiKey.METADATA: {"0+": "topics"},
    ApiKey.OFFSET_COMMIT: {"0+": "topics.partitions"},
    ApiKey.OFFSET_FETCH: {"0-1": "topics.partitions", "2-7": "", "8+": "groups"},
    ApiKey.FIND_COORDINATOR: {"0-3": "", "4+": "coordinators"},
    ApiKey.DESCRIBE_GROUPS: {"0+": "groups"},
    ApiKey.CREATE_TOPICS: {"0+": "topics"},
    ApiKey.DELETE_TOPICS: {"0+": "responses"},
    ApiKey.DELETE_RECORDS: {"0+": "topics.partitions"},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {"0+": "topics.partitions"},
    ApiKey.DESCRIBE_CONFIGS: {"0+": "results"},
    ApiKey.ALTER_CONFIGS: {"0+": "responses"},
    ApiKey.CREATE_PARTITIONS: {"0+": "results"},
    ApiKey.DELETE_GROUPS: {"0+": "results"},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"0+": "responses"},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"0+": "topics"},
    ApiKey.JOIN_GROUP: {"0+": ""},
    ApiKey.SYNC_GROUP: {"0+": ""},
    ApiKey.HEARTBEAT: {"0+": ""},
    ApiKey.LEAVE_GROUP: {"0+": ""},
    ApiKey.LIST_GROUPS: {"0+": ""},
    ApiKey.API_VERSIONS: {"0+": ""},
    ApiKey.INIT_PRODUCER_ID: {"0+": ""},
    ApiKey.OFFSET_DELETE: {"0+": ""},
    ApiKey.DESCRIBE_CLUSTER: {"0+": ""},
    ApiKey.ADD_OFFSETS_TO_TXN: {"0+": ""},
    ApiKey.END_TXN: {"0+": ""},
    ApiKey.TXN_OFFSET_COMMIT: {"0+": "topics.partitions"},
    ApiKey.WRITE_TXN_MARKERS: {"0+": "markers.topics.partitions"},
}


class Sampler:
    """Makes a request that asks about two of everything, no two alike."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.made = 0

    def struct(self, cls: type[Struct]) -> Any:
        present = {f.name: self.value(f.type) for f in cls.FIELDS if self.version in f.versions and f.tag is None}
        return cls(**{f.name: present.get(f.name, f.absent()) for f in cls.FIELDS})

    def value(self, of: WireType[Any]) -> Any:
        if of.element is not None:
            return [self.value(of.element), self.value(of.element)]
        if of.struct is not None:
            return self.struct(of.struct)
        self.made += 1
        if isinstance(of.zero, bool) or of.name == "records":
            return of.zero
        if isinstance(of.zero, str):
            return f"s{self.made}"
        if of.name == "uuid":
            return bytes([self.made]) * 16
        if isinstance(of.zero, float):
            return float(self.made)
        return self.made if isinstance(of.zero, int) else b""


def ids(struct: Struct) -> set[Any]:
    """What distinguishes an item from its neighbours."""
    values = (getattr(struct, f.name) for f in struct.FIELDS if f.type.element is None)
    return {value for value in values if isinstance(value, str | bytes | int) and value}


@in_lots(("key", "version"), SERVED)
def test_the_code_is_where_clients_look_for_it(key: ApiKey, version: int) -> None:
    asked = Sampler(version).struct(api(key).request)
    frame = encode_request(asked, version, 7, "test")[4:]
    header = decode_request_header(frame)
    request = TABLE[key].decode(api(key).request, header, frame)

    made = refusal(key, request, version, CODE)
    assert made is not None
    encoded = b"".join(cast(list[Buffer], TABLE[key].encode(made, version, 7)))
    answer = decode_response(api(key).response, version, encoded[4:])

    assert first_error(answer) == CODE.name
    if key not in PLACES:
        return  # that it is somewhere must do
    place = next(where for versions, where in PLACES[key].items() if version in Versions.of(versions))
    level: list[Any] = [answer]
    for name in filter(None, place.split(".")):
        assert all(getattr(item, "error_code", 0) == ErrorCode.NONE for item in level)
        level = [inner for item in level for inner in getattr(item, name)]
    assert {item.error_code for item in level} == {CODE}
    assert len(level) == 2 ** len(list(filter(None, place.split("."))))
    seen = [frozenset(ids(item) - {CODE}) for item in level]
    assert all(seen) or not place, "an item does not say what it is about"


def test_partitions_and_topics_are_those_that_were_asked_about() -> None:
    frame = encode_request(Sampler(12).struct(FetchRequest), 12, 7, "test")[4:]
    request: Any = TABLE[ApiKey.FETCH].decode(FetchRequest, decode_request_header(frame), frame)
    made: Any = refusal(ApiKey.FETCH, request, 12, CODE)
    assert [(t.topic, [p.partition_index for p in t.partitions]) for t in made.responses] == [
        (t.topic, [p.partition for p in t.partitions]) for t in request.topics
    ]
    assert made.responses[0].partitions[0].high_watermark == -1


def test_what_is_about_a_fetch_session_goes_to_the_top() -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=0, session_id=4, session_epoch=1, topics=[])
    made: Any = refusal(ApiKey.FETCH, request, 12, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert (made.error_code, made.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])


def test_there_is_no_answer_if_nothing_was_asked_about() -> None:
    assert refusal(ApiKey.METADATA, MetadataRequest(topics=[]), 12, CODE) is None


def test_the_error_message_names_the_test_if_there_is_a_field() -> None:
    sample = Sampler(7).struct(api(ApiKey.CREATE_TOPICS).request)
    made: Any = refusal(ApiKey.CREATE_TOPICS, sample, 7, CODE)
    assert made.topics[0].error_message == "INVALID_REQUEST, made by a test"
    assert refusal(ApiKey.LIST_GROUPS, ListGroupsRequest(), 5, CODE) is not None
