"""Chooses the version of a request, and converts requests and responses between the newest form and older ones. Pure.

The rest of the client uses only the newest form, in which coordinators, committed offsets, leaving members and deleted
topics are lists. If an older version is chosen, :func:`downgrade` converts the request before it is encoded, and
:func:`upgrade` converts the response after it is decoded.

:data:`OLDEST` has the oldest version of each API that the client can use, so that the error for a broker that is too
old names the API. Sources: KIP-699 (FindCoordinator), KIP-709 (OffsetFetch), KIP-345
(LeaveGroup), KIP-516.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from barnabas_client.errors import UnsupportedVersionError
from barnabas_protocol.messages.fetch import FetchRequest
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from barnabas_protocol.messages.list_offsets import ListOffsetsRequest
from barnabas_protocol.messages.metadata import MetadataRequest
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request, Response
from barnabas_protocol.structures import codec_for

if TYPE_CHECKING:  # a consumer does not import what only the admin, or the consumer protocol, sends
    from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest
    from barnabas_protocol.messages.list_config_resources import ListConfigResourcesRequest
    from barnabas_protocol.messages.list_transactions import ListTransactionsRequest

R = TypeVar("R", bound=Response)

#: In older versions, records have another format (KIP-98), or the response lacks fields that the client needs.
OLDEST: Final = {
    ApiKey.PRODUCE: 3,
    ApiKey.FETCH: 4,
    ApiKey.LIST_OFFSETS: 1,
    ApiKey.METADATA: 1,
    ApiKey.OFFSET_COMMIT: 2,
    ApiKey.OFFSET_FETCH: 2,
    ApiKey.JOIN_GROUP: 1,
    ApiKey.CREATE_TOPICS: 1,
}
#: The only type of resource that version 0 of ListConfigResources lists.
_CLIENT_METRICS: Final = 16
#: The newest version of OffsetCommit and OffsetFetch with topic names instead of topic ids.
OFFSETS_BY_NAME: Final = 9
#: The newest version of Fetch and of Produce with topic names instead of topic ids (KIP-516).
TOPICS_BY_NAME: Final = 12


class ApiRange(NamedTuple):
    """The range of versions of an API that a broker has."""

    low: int
    high: int


def choose_version(request: type[Request] | type[Response], broker: ApiRange | None, at_most: int | None) -> int:
    """Choose the newest version that the broker and this client have, not above `at_most`.

    Raises:
        UnsupportedVersionError: there is no such version.
    """
    key = ApiKey(request.API_KEY)
    if broker is None:
        raise UnsupportedVersionError(f"the broker does not have {key.name}: use a broker that does")
    low = max(request.VERSIONS.low, broker.low, OLDEST.get(key, 0))
    high = min(request.VERSIONS.high, broker.high)
    if at_most is not None:
        high = min(high, at_most)
    if low > high:
        raise UnsupportedVersionError(
            f"{key.name}: the broker has versions {broker.low} to {broker.high}, this needs {OLDEST.get(key, 0)} to "
            f"{request.VERSIONS.high if at_most is None else at_most}: use another version of the broker or of this "
            "client"
        )
    return high


def prepare(messages: Iterable[type[Request] | type[Response]], broker: Mapping[int, ApiRange]) -> None:
    """Make the constructs of messages that are used soon, in the versions that this broker and the client have."""
    for message in messages:
        try:
            codec_for(message, choose_version(message, broker.get(message.API_KEY), None))
        except UnsupportedVersionError:
            pass  # whatever uses it says so


def downgrade(request: Request, version: int) -> Request:
    """Convert `request`, in its newest form, to `version`.

    Raises:
        UnsupportedVersionError: that version does not have the fields.
    """
    if isinstance(request, FindCoordinatorRequest) and version < 4:
        (key,) = request.coordinator_keys
        return FindCoordinatorRequest(key=key, key_type=request.key_type)
    if isinstance(request, OffsetFetchRequest) and version < 8:
        (group,) = request.groups
        stable = request.require_stable and version >= 7  # an older broker has no transactional offsets to wait for
        topics = None
        if group.topics is not None:
            topics = [OffsetFetchRequestTopic(name=t.name, partition_indexes=t.partition_indexes) for t in group.topics]
        return OffsetFetchRequest(group_id=group.group_id, topics=topics, require_stable=stable)
    if isinstance(request, MetadataRequest) and version < 4:
        return MetadataRequest(topics=request.topics)  # the broker's configuration decides whether topics are created
    if isinstance(request, FetchRequest) and version < 12:
        for topic in request.topics:
            for partition in topic.partitions:
                partition.last_fetched_epoch = -1  # truncation is detected by OffsetForLeaderEpoch only (KIP-320)
        return request
    if isinstance(request, ListOffsetsRequest) and version < 2:
        return ListOffsetsRequest(replica_id=request.replica_id, topics=request.topics)
    if isinstance(request, LeaveGroupRequest) and version < 3:
        (member,) = request.members
        return LeaveGroupRequest(group_id=request.group_id, member_id=member.member_id)
    if request.API_KEY == ApiKey.LIST_TRANSACTIONS:
        _check_filters(cast("ListTransactionsRequest", request), version)
    elif request.API_KEY == ApiKey.LIST_CONFIG_RESOURCES and version < 1:
        return _metrics_only(cast("ListConfigResourcesRequest", request))
    elif request.API_KEY == ApiKey.CONSUMER_GROUP_HEARTBEAT and version < 1:
        _drop_pattern(cast("ConsumerGroupHeartbeatRequest", request))
    elif request.API_KEY == ApiKey.DELETE_TOPICS and version < 6:
        return _by_name(cast("DeleteTopicsRequest", request))
    return request


def _check_filters(request: "ListTransactionsRequest", version: int) -> None:
    if version < 2 and request.transactional_id_pattern is not None:
        raise UnsupportedVersionError("the broker cannot filter transactions by a pattern: leave it out")
    if version < 1 and request.duration_filter >= 0:
        raise UnsupportedVersionError("the broker cannot filter transactions by duration: leave it out")


def _metrics_only(request: "ListConfigResourcesRequest") -> Request:
    if request.resource_types != [_CLIENT_METRICS]:
        raise UnsupportedVersionError("the broker can list client metrics only (KIP-1142): ask for no other types")
    return type(request)(resource_types=[])


def _drop_pattern(request: "ConsumerGroupHeartbeatRequest") -> None:
    if request.subscribed_topic_regex:
        raise UnsupportedVersionError(
            "the broker cannot match topics with a pattern (KIP-1082): give re.compile(pattern), which the client "
            "matches"
        )
    request.subscribed_topic_regex = None


def _by_name(request: "DeleteTopicsRequest") -> Request:
    names = [topic.name for topic in request.topics if topic.name is not None]
    if len(names) != len(request.topics):
        raise UnsupportedVersionError("the broker cannot delete topics by id: name them")
    return type(request)(topic_names=names, timeout_ms=request.timeout_ms)


def upgrade(request: Request, response: R, version: int) -> R:
    """Convert `response` from `version` to its newest form. `request` is its request, in the newest form."""
    if isinstance(request, FindCoordinatorRequest) and isinstance(response, FindCoordinatorResponse) and version < 4:
        return cast(R, _coordinator(request, response))
    if isinstance(request, OffsetFetchRequest) and isinstance(response, OffsetFetchResponse) and version < 8:
        return cast(R, _offsets(request, response))
    if isinstance(request, LeaveGroupRequest) and isinstance(response, LeaveGroupResponse) and version < 3:
        response.members = [
            MemberResponse(member_id=member.member_id, group_instance_id=None, error_code=response.error_code)
            for member in request.members
        ]
    return response


def _coordinator(request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> FindCoordinatorResponse:
    found = Coordinator(
        key=request.coordinator_keys[0],
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )
    return FindCoordinatorResponse(throttle_time_ms=response.throttle_time_ms, coordinators=[found])


def _offsets(request: OffsetFetchRequest, response: OffsetFetchResponse) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(
                    partition_index=partition.partition_index,
                    committed_offset=partition.committed_offset,
                    committed_leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error_code,
                )
                for partition in topic.partitions
            ],
        )
        for topic in response.topics
    ]
    group = OffsetFetchResponseGroup(group_id=request.groups[0].group_id, topics=topics, error_code=response.error_code)
    return OffsetFetchResponse(throttle_time_ms=response.throttle_time_ms, groups=[group])
