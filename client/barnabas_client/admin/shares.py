"""Share groups (KIP-932) in the admin client: parts of requests and responses. Pure."""

from collections.abc import Iterable, Mapping

from barnabas_client.admin.refusals import failure, label, not_mentioned
from barnabas_client.admin.types import ShareGroupOffset, TopicResult
from barnabas_client.structs import TopicPartition, by_topic
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from barnabas_protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from barnabas_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponsePartition,
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
    response: DescribeShareGroupOffsetsResponse, group_id: str, what: str
) -> dict[TopicPartition, ShareGroupOffset] | KafkaError:
    """Read the response of DescribeShareGroupOffsets about a group, by partition ascending."""

    def offset(tp: TopicPartition, row: DescribeShareGroupOffsetsResponsePartition) -> ShareGroupOffset:
        return ShareGroupOffset(
            row.start_offset if row.error_code == ErrorCode.NONE and row.start_offset >= 0 else None,
            row.lag if row.error_code == ErrorCode.NONE and row.lag >= 0 else None,
            row.leader_epoch,
            failure(row, f"{what} for {tp}"),
        )

    for one in response.groups:
        if one.group_id == group_id:
            found = {
                TopicPartition(topic.topic_name, row.partition_index): row
                for topic in one.topics
                for row in topic.partitions
            }
            return failure(one, what) or {tp: offset(tp, found[tp]) for tp in sorted(found)}
    return not_mentioned(what)


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


def deleted_offsets(response: DeleteShareGroupOffsetsResponse, names: Iterable[str], what: str) -> list[TopicResult]:
    """Read the response of DeleteShareGroupOffsets about topics of these names."""
    found = {one.topic_name: one for one in response.responses}
    return [
        TopicResult(name, failure(found[name], label(what, name)), found[name].topic_id)
        if name in found
        else TopicResult(name, not_mentioned(label(what, name)))
        for name in names
    ]
