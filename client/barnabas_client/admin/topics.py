"""The admin client's topics: creating, deleting, describing, growing them, and cutting off their records."""

from collections.abc import Iterable, Mapping

from barnabas_client.admin.base import AdminBase, names_of, raise_first, refused
from barnabas_client.admin.types import DeletedRecords, NewTopic, TopicResult
from barnabas_client.errors import error_for
from barnabas_client.membership.consumer_protocol import by_topic
from barnabas_client.network.metadata import Cluster, Topic
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas_protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState


class TopicAdmin(AdminBase):
    """What the admin client does with topics."""

    async def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> list[TopicResult]:
        """Create topics.

        Args:
            new_topics: what to create.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            validate_only: only check whether they could be created.
            raise_errors: raise the first refusal, after all others were created; otherwise it is in its result.

        Raises:
            TopicAlreadyExistsError, InvalidTopicError: as the names say.
            KafkaTimeoutError: the controller was not found or did not answer.
            KafkaError: it refused otherwise.
        """
        milliseconds = self._milliseconds(timeout_ms)
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in new_topics],
            timeout_ms=self._for_broker(milliseconds),
            validate_only=validate_only,
        )
        response = await self._ask_controller(
            request, CreateTopicsResponse, lambda answer: [one.error_code for one in answer.topics], milliseconds
        )
        results = [
            TopicResult(
                one.name,
                refused(one.error_code, f"create topic {one.name!r}", one.error_message),
                one.topic_id,
                one.num_partitions,
                one.replication_factor,
            )
            for one in response.topics
        ]
        if raise_errors:
            raise_first(results)
        return results

    async def delete_topics(
        self, topics: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[TopicResult]:
        """Delete topics by name.

        Args:
            topics: their names.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first refusal, after all others were deleted; otherwise it is in its result.

        Returns:
            A result for each topic, in the order of `topics`.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaTimeoutError: the controller was not found or did not answer.
            KafkaError: it refused otherwise.
        """
        milliseconds = self._milliseconds(timeout_ms)
        names = names_of("delete_topics", topics)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in names],
            timeout_ms=self._for_broker(milliseconds),
        )
        response = await self._ask_controller(
            request, DeleteTopicsResponse, lambda answer: [one.error_code for one in answer.responses], milliseconds
        )
        results = [
            TopicResult(
                one.name or "",
                refused(one.error_code, f"delete topic {one.name!r}", one.error_message),
                one.topic_id,
            )
            for one in response.responses
        ]
        order = {name: place for place, name in enumerate(names)}
        results.sort(key=lambda one: order.get(one.name, len(order)))  # brokers answer in any order
        if raise_errors:
            raise_first(results)
        return results

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, int],
        timeout_ms: int | None = None,
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> list[TopicResult]:
        """Give topics more partitions. Keys then go elsewhere: records with the same key no longer share a partition.

        Args:
            topic_partitions: for each topic the number of partitions it is to have.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            validate_only: only check whether it could be done.
            raise_errors: raise the first refusal, after all others were done; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaTimeoutError: the controller was not found or did not answer.
            KafkaError: it refused otherwise, such as because the topic has as many already.
        """
        milliseconds = self._milliseconds(timeout_ms)
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in topic_partitions.items()
            ],
            timeout_ms=self._for_broker(milliseconds),
            validate_only=validate_only,
        )
        response = await self._ask_controller(
            request, CreatePartitionsResponse, lambda answer: [one.error_code for one in answer.results], milliseconds
        )
        results = []
        for one in response.results:
            error = refused(one.error_code, f"give topic {one.name!r} more partitions", one.error_message)
            count = topic_partitions.get(one.name, -1)
            results.append(TopicResult(one.name, error, num_partitions=count if error is None else -1))
        if raise_errors:
            raise_first(results)
        return results

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics that this client may see, ascending.

        Args:
            internal: with the brokers' own, such as ``__consumer_offsets``.

        Raises:
            KafkaError: no broker answers.
        """
        return [topic.name for topic in await self.describe_topics(internal=internal)]

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, internal: bool = True, raise_errors: bool = True
    ) -> list[Topic]:
        """Topics with their partitions, leaders and replicas, by name ascending.

        Args:
            topics: their names; all if None.
            internal: with the brokers' own, if all are asked for.
            raise_errors: raise if one that was named is not there; otherwise its `error` says so.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaError: no broker answers.
        """
        names = None if topics is None else set(names_of("describe_topics", topics))
        cluster = await self._running().look_up(names)
        if names is None:
            return [topic for _, topic in sorted(cluster.topics.items()) if internal or not topic.internal]
        found = []
        for name in sorted(names):
            topic = cluster.topics.get(name) or Topic(name, bytes(16), {}, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if raise_errors and topic.error != ErrorCode.NONE:
                raise error_for(topic.error, f"describe topic {name!r}")
            found.append(topic)
        return found

    async def delete_records(
        self,
        records_to_delete: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete the records before an offset of each partition.

        Args:
            records_to_delete: for each partition the first offset to keep; -1 keeps nothing.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first refusal, after all others were done; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: there is no such partition.
            OffsetOutOfRangeError: the partition does not have that offset.
            KafkaError: it was refused otherwise.
        """
        network, milliseconds = self._running(), self._milliseconds(timeout_ms)

        async def ask(
            cluster: Cluster, leader: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, DeletedRecords | KafkaError]:
            request = DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(
                                partition_index=number, offset=records_to_delete[TopicPartition(topic, number)]
                            )
                            for number in numbers
                        ],
                    )
                    for topic, numbers in by_topic(partitions)
                ],
                timeout_ms=self._for_broker(milliseconds),
            )
            response = await network.ask(leader, request, DeleteRecordsResponse)
            return {
                TopicPartition(topic.name, one.partition_index): refused(
                    one.error_code, f"delete records of {topic.name}-{one.partition_index}"
                )
                or DeletedRecords(one.low_watermark)
                for topic in response.topics
                for one in topic.partitions
            }

        found = await self._ask_leaders("delete records of", list(records_to_delete), ask, milliseconds)
        results = {tp: DeletedRecords(error=one) if isinstance(one, KafkaError) else one for tp, one in found.items()}
        if raise_errors:
            raise_first(results.values())
        return results


def _creatable(topic: NewTopic) -> CreatableTopic:
    if not isinstance(topic, NewTopic):
        raise TypeError(f"create_topics: {topic!r}: give NewTopic(name, num_partitions, replication_factor)")
    return CreatableTopic(
        name=topic.name,
        # The broker wants -1 where the replicas are given.
        num_partitions=-1 if topic.replica_assignments else topic.num_partitions,
        replication_factor=-1 if topic.replica_assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in topic.replica_assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.topic_configs.items()],
    )
