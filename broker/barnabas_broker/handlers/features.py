"""UpdateFeatures and DescribeQuorum: the levels of the cluster's features, and the quorum of Kafka's controllers.

Deviations: the levels of features are those of the broker's version and do not change; there is no quorum, because
brokers coordinate through etcd.
"""

from typing import Final

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.steps import Steps
from barnabas_broker.transactions.transaction import SERVER_VERSION
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import METADATA_TOPIC
from barnabas_protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartition,
    DescribeQuorumResponseTopic,
)
from barnabas_protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas_protocol.printable import printable
from barnabas_protocol.registry import ApiKey

#: The features (KIP-584): groups of the consumer protocol (KIP-848), share groups (KIP-932, KIP-1191), and an epoch for
#: each transaction (KIP-890).
FEATURES: Final = {"group.version": 1, "share.version": 2, "transaction.version": SERVER_VERSION}

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_FAILED: Final = "The update failed for all features since the following feature had an error"


@stepwise
def handle_update_features(context: RequestContext, request: UpdateFeaturesRequest) -> Steps[UpdateFeaturesResponse]:
    """Answer UpdateFeatures: a feature may be set to the level that it has; anything else is refused as a whole."""
    try:
        context.require_on_cluster(acls.ALTER)
        names: dict[str, None] = {}
        for update in request.feature_updates:
            _check(context, update)
            names[update.feature] = None
            yield
    except KafkaError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    results = [UpdatableFeatureResult(feature=name, error_code=0, error_message="NONE") for name in names]
    return UpdateFeaturesResponse(
        error_code=ErrorCode.NONE, error_message=None, results=results if context.version < 2 else []
    )


def _check(context: RequestContext, update: FeatureUpdateKey) -> None:
    """Check one change of a feature.

    Raises:
        KafkaError: INVALID_UPDATE_VERSION, it would change something, or is not possible.
    """
    level, wanted = FEATURES.get(update.feature), update.max_version_level
    if level is None:
        why = f"Broker {context.services.node_id} does not support this feature."
    elif update.upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        why = "The broker does not support the given upgrade type."
    elif wanted != level:
        why = f"Its level is {level}, which belongs to the broker's version and cannot be changed."
    else:
        return
    name = printable(update.feature)
    text = f"{_FAILED}: Invalid update version {wanted} for feature {name}. {why}"
    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, text)


@stepwise
def handle_describe_quorum(context: RequestContext, request: DescribeQuorumRequest) -> Steps[DescribeQuorumResponse]:
    """Answer DescribeQuorum: UNSUPPORTED_VERSION, as clients expect it of a cluster without a quorum of controllers."""
    try:
        context.require_on_cluster(acls.DESCRIBE)
    except KafkaError as error:
        return _no_quorum(error)
    if _is_metadata(request):
        text = "there is no quorum of controllers: the brokers of this cluster coordinate through etcd"
        return _no_quorum(KafkaError(ErrorCode.UNSUPPORTED_VERSION, text))
    topics = []
    unknown: dict[int, DescribeQuorumResponsePartition] = {}  # one object for all topics: many would be freed at once
    for topic in request.topics:
        partitions = []
        for each in topic.partitions:
            index = each.partition_index
            partitions.append(unknown[index] if index in unknown else unknown.setdefault(index, _unknown(index)))
            yield
        topics.append(DescribeQuorumResponseTopic(topic_name=topic.topic_name, partitions=partitions))
        yield
    return DescribeQuorumResponse(error_code=ErrorCode.NONE, topics=topics)


def _is_metadata(request: DescribeQuorumRequest) -> bool:
    """Whether only the log of the controllers is asked for."""
    if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
        return False
    (topic,) = request.topics
    return topic.topic_name == METADATA_TOPIC and topic.partitions[0].partition_index == 0


def _no_quorum(error: KafkaError) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=error.code, error_message=error.message, topics=[])


def _unknown(index: int) -> DescribeQuorumResponsePartition:
    return DescribeQuorumResponsePartition(
        partition_index=index,
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="This server does not host this topic-partition.",
        leader_id=0,
        leader_epoch=0,
        high_watermark=0,
        current_voters=[],
        observers=[],
    )


ROUTES: Final = (
    Route(ApiKey.UPDATE_FEATURES, handle_update_features, (requires((acls.ALTER, acls.CLUSTER)),)),
    Route(ApiKey.DESCRIBE_QUORUM, handle_describe_quorum, (requires((acls.DESCRIBE, acls.CLUSTER)),)),
)
