"""Share groups (KIP-932) in the admin client: requests and responses. Pure."""

from collections.abc import Iterable, Mapping

from barnabas_client.admin.refusals import refusal, refused
from barnabas_client.admin.types import (
    PartitionResult,
    ShareGroupOffset,
    TopicResult,
)
from barnabas_client.structs import TopicPartition, by_topic
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from barnabas_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from barnabas_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)


def describe_offsets_request(
    group_id: str, partitions: Iterable[TopicPartition] | None
) -> DescribeShareGroupOffsetsRequest:
    """Create the request of DescribeShareGroupOffsets for one group; all partitions if `partitions` is None."""
    topics = None
    if partitions is not None:
        topics = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in by_topic(partitions)
        ]
    group = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)
    return DescribeShareGroupOffsetsRequest(groups=[group])


def described_offsets(
    response: DescribeShareGroupOffsetsResponse, what: str
) -> dict[str, dict[TopicPartition, ShareGroupOffset] | KafkaError]:
    """Read the response of DescribeShareGroupOffsets, by group."""
    return {
        one.group_id: refused(one.error_code, what, one.error_message)
        or {
            TopicPartition(topic.topic_name, row.partition_index): ShareGroupOffset(
                row.start_offset if row.error_code == ErrorCode.NONE and row.start_offset >= 0 else None,
                row.lag if row.error_code == ErrorCode.NONE and row.lag >= 0 else None,
                row.leader_epoch,
                refused(row.error_code, f"{what} for {topic.topic_name}-{row.partition_index}", row.error_message),
            )
            for topic in one.topics
            for row in topic.partitions
        }
        for one in response.groups
    }


def alter_offsets_request(group_id: str, offsets: Mapping[TopicPartition, int]) -> AlterShareGroupOffsetsRequest:
    """Create the request of AlterShareGroupOffsets."""
    return AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=number, start_offset=offsets[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets)
        ],
    )


def altered_offsets(
    response: AlterShareGroupOffsetsResponse, what: str
) -> dict[TopicPartition, PartitionResult] | KafkaError:
    """Read the response of AlterShareGroupOffsets."""
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, what, response.error_message)
    return {
        TopicPartition(topic.topic_name, row.partition_index): PartitionResult(
            refused(row.error_code, f"{what} for {topic.topic_name}-{row.partition_index}", row.error_message)
        )
        for topic in response.responses
        for row in topic.partitions
    }


def delete_offsets_request(group_id: str, topics: Iterable[str]) -> DeleteShareGroupOffsetsRequest:
    """Create the request of DeleteShareGroupOffsets."""
    return DeleteShareGroupOffsetsRequest(
        group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
    )


def deleted_offsets(response: DeleteShareGroupOffsetsResponse, what: str) -> dict[str, TopicResult] | KafkaError:
    """Read the response of DeleteShareGroupOffsets, by topic."""
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, what, response.error_message)
    return {
        one.topic_name: TopicResult(
            one.topic_name,
            refused(one.error_code, f"{what} for topic {one.topic_name!r}", one.error_message),
            one.topic_id,
        )
        for one in response.responses
    }
