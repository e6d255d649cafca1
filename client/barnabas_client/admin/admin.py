"""The admin client: topics, configurations, groups, committed offsets and the cluster.

A call about several items does what it can for each of them, and then raises the first error, with the others as its
notes. With ``raise_errors=False`` it returns a result for each item instead, with its `error`. Names are aiokafka's
where aiokafka has them, else those of Kafka's ``Admin.java``.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from types import TracebackType
from typing import Final, Self, TypeVar, Unpack

from barnabas_client.admin import acls as acl_messages
from barnabas_client.admin import messages, shares, transactions
from barnabas_client.admin.acls import AclBinding, AclBindingFilter, AclResult
from barnabas_client.admin.asked import Asked
from barnabas_client.admin.driver import GROUP, LEADER, OWNER, TRANSACTION, Driver
from barnabas_client.admin.messages import partition_results, partitions_in
from barnabas_client.admin.quotas import (
    ClientQuotaAlteration,
    ClientQuotaResult,
    ClientQuotas,
    alter_quotas_request,
    altered_quotas,
    describe_quotas_request,
    described_quotas,
)
from barnabas_client.admin.refusals import checked, failure, raise_first, refused, results_of
from barnabas_client.admin.types import (
    AlterConfigOp,
    BrokerConditions,
    BrokerLogDirs,
    ClusterDescription,
    ConfigResource,
    ConfigResult,
    DeletedRecords,
    ElectionType,
    EligibleLeaders,
    FencedProducer,
    GroupDescription,
    GroupListing,
    GroupListings,
    GroupResult,
    ListedOffset,
    MemberResult,
    NewTopic,
    Offsets,
    OffsetSpec,
    PartitionProducers,
    PartitionReassignment,
    PartitionResult,
    PartitionResults,
    ResourceType,
    ShareGroupOffset,
    TopicResult,
    TransactionDescription,
    TransactionListing,
    TransactionListings,
)
from barnabas_client.admin.users import (
    UserResult,
    UserScramCredentialDeletion,
    UserScramCredentials,
    UserScramCredentialUpsertion,
    alter_users_request,
    described_users,
)
from barnabas_client.checks import offsets_of
from barnabas_client.config import DEFAULT_SERVERS, ClientConfig, ConnectionSettings, parse_servers
from barnabas_client.errors import UnsupportedVersionError, error_for
from barnabas_client.keywords import takes
from barnabas_client.lifecycle import AsyncOnly, Life, State
from barnabas_client.network.metadata import Node, TopicInfo
from barnabas_client.network.network import Network
from barnabas_client.network.versions import OFFSETS_BY_NAME
from barnabas_client.structs import OffsetAndMetadata, PreparedTransaction, TopicPartition, by_topic
from barnabas_client.tasks import uninterrupted
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.alter_client_quotas import AlterClientQuotasResponse
from barnabas_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas_protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from barnabas_protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse
from barnabas_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas_protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from barnabas_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas_protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas_protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas_protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from barnabas_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas_protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas_protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
)
from barnabas_protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
from barnabas_protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from barnabas_protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas_protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from barnabas_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from barnabas_protocol.messages.end_txn import EndTxnResponse
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas_protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from barnabas_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.list_offsets import ListOffsetsResponse
from barnabas_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from barnabas_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas_protocol.messages.offset_commit import OffsetCommitResponse
from barnabas_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas_protocol.messages.offset_fetch import OffsetFetchResponse
from barnabas_protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from barnabas_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_protocol.registry import ApiKey

__all__ = ["Admin"]

V = TypeVar("V")

#: The first version of ListOffsets with the newest timestamp (KIP-734).
_MAX_TIMESTAMP_VERSION: Final = 7


class Admin(AsyncOnly):
    """Manages topics, configurations and groups.

    ::

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("flights", num_partitions=6)])

    Nothing is connected before :meth:`start`.

    Args:
        bootstrap_servers: addresses to start with, ``"host:port,host:port"`` or a list of such strings; the cluster
            names the others. Default: "localhost:9092".
        client_id: the name of this client in the brokers' logs. Default: "barnabas-admin".
        request_timeout_ms: how long a call may take. Default: 40000 ms.
        retry_backoff_ms: the pause before the first retry; it doubles up to `retry_backoff_max_ms` (KIP-580). Default:
            100 ms.
        retry_backoff_max_ms: the longest pause before a retry. Default: 1000 ms.
        metadata_max_age_ms: how often metadata is refreshed when nothing else refreshes it. Default: 300000 ms.
        connections_max_idle_ms: connections that are idle for so long are closed. Default: 540000 ms.
        security_protocol: "PLAINTEXT", "SSL" for TLS, "SASL_SSL" to log in over TLS, or "SASL_PLAINTEXT" to log in
            without it. Default: "PLAINTEXT".
        ssl_context: the context for TLS. Default: None, which makes one of the next five.
        ssl_cafile: a PEM file with the certificates to trust. Default: None, which trusts the system's.
        ssl_certfile: a PEM file with this client's certificate, and its key unless `ssl_keyfile` is given. Default:
            None.
        ssl_keyfile: a PEM file with the key of that certificate. Default: None.
        ssl_password: the password of an encrypted key. Default: None.
        ssl_check_hostname: check that the certificate of a broker is for its host name. Default: True.
        sasl_mechanism: how to log in: "PLAIN", which sends the password, "SCRAM-SHA-256", "SCRAM-SHA-512", or
            "OAUTHBEARER", which sends a token. Default: "PLAIN".
        sasl_plain_username: the user, for all mechanisms but OAUTHBEARER. Default: None.
        sasl_plain_password: the user's password. Default: None.
        sasl_oauth_token_provider: gives the tokens of OAUTHBEARER; see
            :class:`~barnabas_client.tokens.AbstractTokenProvider`. Default: None.

    Raises:
        TypeError, ValueError: a setting is invalid; the message names it and what would be right.
    """

    @takes(ClientConfig)
    def __init__(
        self,
        *,
        bootstrap_servers: str | Iterable[str] = DEFAULT_SERVERS,
        client_id: str = "barnabas-admin",
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        self._config = ClientConfig(servers=parse_servers(bootstrap_servers), client_id=client_id, **settings)
        self._life = Life("admin client")
        self._network = Network(self._config)

    # Start and end.

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaConnectionError: no broker answers.
            IllegalStateError: it was started before, or is closed meanwhile.
        """
        await self._life.start(self._network.start, self._network.close)

    async def close(self) -> None:
        """Disconnect. A second call does nothing. A :meth:`start` in progress ends."""
        if self._life.state is State.STOPPED:
            return
        self._life.check()
        before, self._life.state = self._life.state, State.STOPPED
        try:
            await self._life.end_start()
        finally:
            if before is not State.NEW:
                await uninterrupted(self._network.close())

    async def stop(self) -> None:
        """Disconnect, as :meth:`close`."""
        await self.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # Topics.

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
            raise_errors: raise the first error, after all other topics were created; otherwise it is in its result.

        Raises:
            TopicAlreadyExistsError, InvalidTopicError: as the names say.
            KafkaTimeoutError: the controller was not found or did not answer.
            KafkaError: the controller refused it for another reason.
        """
        driver = self._running(timeout_ms)
        results = await driver.controller(
            "create topics",
            CreateTopicsRequest(
                topics=[messages.creatable(topic) for topic in new_topics],
                timeout_ms=driver.broker_ms,
                validate_only=validate_only,
            ),
            CreateTopicsResponse,
            lambda response: [
                TopicResult(
                    one.name,
                    failure(one, f"create topic {one.name!r}"),
                    one.topic_id,
                    one.num_partitions,
                    one.replication_factor,
                    {entry.name: entry.value for entry in one.configs or ()},
                )
                for one in response.topics
            ],
        )
        return checked(results, raise_errors)

    async def delete_topics(
        self, topics: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[TopicResult]:
        """Delete topics by name.

        Args:
            topics: their names.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other topics were deleted; otherwise it is in its result.

        Returns:
            A result for each topic, in the order of `topics`.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            KafkaTimeoutError: the controller was not found or did not answer.
            KafkaError: the controller refused it for another reason.
        """
        driver = self._running(timeout_ms)
        names = _names("delete_topics", topics)
        results = await driver.controller(
            "delete topics",
            DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=driver.broker_ms),
            DeleteTopicsResponse,
            lambda response: [
                TopicResult(one.name or "", failure(one, f"delete topic {one.name!r}"), one.topic_id)
                for one in response.responses
            ],
        )
        order = {name: place for place, name in enumerate(names)}
        return checked(sorted(results, key=lambda one: order.get(one.name, len(order))), raise_errors)

    async def create_partitions(
        self,
        topic_partitions: Mapping[str, int],
        timeout_ms: int | None = None,
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> list[TopicResult]:
        """Add partitions to topics. Later records may then be in another partition than earlier ones with the same key.

        Args:
            topic_partitions: for each topic the new number of partitions.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            validate_only: only check whether it could be done.
            raise_errors: raise the first error, after all other topics were changed; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            KafkaTimeoutError: the controller was not found or did not answer.
            KafkaError: the controller refused it for another reason, such as that the topic has as many already.
        """
        driver = self._running(timeout_ms)
        results = await driver.controller(
            "create partitions",
            CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(name=name, count=count, assignments=None)
                    for name, count in topic_partitions.items()
                ],
                timeout_ms=driver.broker_ms,
                validate_only=validate_only,
            ),
            CreatePartitionsResponse,
            lambda response: [
                TopicResult(
                    one.name,
                    failure(one, f"give topic {one.name!r} more partitions"),
                    num_partitions=topic_partitions.get(one.name, -1) if one.error_code == ErrorCode.NONE else -1,
                )
                for one in response.results
            ],
        )
        return checked(results, raise_errors)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics that this client may see, ascending.

        Args:
            internal: include internal topics, such as ``__consumer_offsets``.

        Raises:
            KafkaError: no broker answers.
        """
        return [topic.name for topic in await self.describe_topics(internal=internal)]

    async def describe_topics(
        self, topics: Iterable[str] | None = None, *, internal: bool = True, raise_errors: bool = True
    ) -> list[TopicInfo]:
        """Topics with their partitions, leaders and replicas, by name ascending.

        Args:
            topics: their names; all topics if None.
            internal: include internal topics, if `topics` is None.
            raise_errors: raise an error if a named topic does not exist; otherwise it is in its `error`.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            KafkaError: no broker answers.
        """
        self._running()
        names = None if topics is None else set(_names("describe_topics", topics))
        cluster = await self._network.look_up(names)
        if names is None:
            return [topic for _, topic in sorted(cluster.topics.items()) if internal or not topic.internal]
        found = []
        for name in sorted(names):
            unknown = TopicInfo(name, bytes(16), {}, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            topic = cluster.topics.get(name, unknown)
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
            records_to_delete: for each partition the first offset to keep; -1 deletes all records.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other partitions; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            OffsetOutOfRangeError: the partition does not have that offset.
            KafkaError: the leader refused it for another reason.
        """
        driver = self._running(timeout_ms)

        def partition(topic: str, number: int) -> DeleteRecordsPartition:
            offset = records_to_delete[TopicPartition(topic, number)]
            return DeleteRecordsPartition(partition_index=number, offset=offset)

        found = await driver.each(
            LEADER,
            "delete records of",
            records_to_delete,
            lambda those: DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(name=topic, partitions=[partition(topic, number) for number in numbers])
                    for topic, numbers in by_topic(those)
                ],
                timeout_ms=driver.broker_ms,
            ),
            DeleteRecordsResponse,
            lambda response, asked: asked.outcomes(
                partitions_in(response.topics), lambda row: DeletedRecords(row.low_watermark)
            ),
        )
        return results_of(found, lambda _, error: DeletedRecords(error=error), raise_errors)

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        timeout_ms: int | None = None,
        *,
        read_committed: bool = False,
        raise_errors: bool = True,
    ) -> dict[TopicPartition, ListedOffset]:
        """Look up offsets at the leaders of the partitions.

        Args:
            specs: for each partition what to look up: the earliest, the latest, the newest timestamp, or the first
                record at or after a time in milliseconds since 1970.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            read_committed: look up the last stable offset as the latest.
            raise_errors: raise the first error; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            KafkaError: an offset cannot be looked up for another reason.
        """
        driver = self._running(timeout_ms)

        async def ask(asked: Asked[TopicPartition]) -> dict[TopicPartition, ListedOffset | KafkaError]:
            if any(specs[tp] == OffsetSpec.MAX_TIMESTAMP for tp in asked.items):
                await driver.require_version(
                    asked.node, ApiKey.LIST_OFFSETS, _MAX_TIMESTAMP_VERSION, "the newest timestamp"
                )
            times = {tp: specs[tp] for tp in asked.items}
            return await driver.send(
                asked,
                messages.list_offsets_request(asked.cluster, times, driver.milliseconds, read_committed=read_committed),
                ListOffsetsResponse,
                lambda response, asked: asked.outcomes(
                    partitions_in(response.topics),
                    lambda row: ListedOffset(row.offset, row.timestamp, row.leader_epoch),
                ),
            )

        found = await driver.settle(LEADER, "list offsets of", specs, ask)
        return results_of(found, lambda _, error: ListedOffset(error=error), raise_errors)

    # Configurations.

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        keys: Iterable[str] | None = None,
        timeout_ms: int | None = None,
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        raise_errors: bool = True,
    ) -> list[ConfigResult]:
        """The configuration of topics, brokers and groups.

        Args:
            resources: the topics, brokers and groups.
            keys: only these keys; all if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            include_synonyms: include the values that apply when a value is removed.
            include_documentation: include the description of each key.
            raise_errors: raise the first error; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            KafkaError: a configuration cannot be described for another reason.
        """
        wanted = None if keys is None else list(keys)
        found = await self._running(timeout_ms).each(
            OWNER,
            "describe the configuration of",
            resources,
            lambda those: DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=one.type, resource_name=one.name, configuration_keys=wanted)
                    for one in those
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            ),
            DescribeConfigsResponse,
            lambda response, asked: asked.outcomes(
                ((messages.resource(row), row) for row in response.results),
                lambda row: ConfigResult(
                    messages.resource(row), None, {one.name: messages.config_entry(one) for one in row.configs}
                ),
            ),
        )
        return list(results_of(found, ConfigResult, raise_errors).values())

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[AlterConfigOp]],
        timeout_ms: int | None = None,
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> list[ConfigResult]:
        """Change single keys and leave the others as they are (KIP-339).

        Args:
            changes: for each resource what to change.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            validate_only: only check whether it could be done.
            raise_errors: raise the first error, after all other resources were changed; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            KafkaError: a key or value was refused; the configuration of that resource is unchanged.
        """
        ops = {resource: list(those) for resource, those in changes.items()}
        found = await self._running(timeout_ms).each(
            OWNER,
            "change the configuration of",
            ops,
            lambda those: IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(
                        resource_type=one.type,
                        resource_name=one.name,
                        configs=[
                            IncrementalAlterableConfig(name=op.name, config_operation=op.op, value=op.value)
                            for op in ops[one]
                        ],
                    )
                    for one in those
                ],
                validate_only=validate_only,
            ),
            IncrementalAlterConfigsResponse,
            lambda response, asked: asked.outcomes(
                ((messages.resource(row), row) for row in response.responses),
                lambda row: ConfigResult(messages.resource(row)),
            ),
        )
        return list(results_of(found, ConfigResult, raise_errors).values())

    async def list_config_resources(
        self, types: Iterable[ResourceType] = (), timeout_ms: int | None = None
    ) -> list[ConfigResource]:
        """The resources that have a configuration (KIP-1142): all topics and brokers, and groups and subscriptions to
        metrics of clients with keys of their own.

        Args:
            types: only resources of these types; all if empty. Apache Kafka before 4.1 lists only
                `ResourceType.CLIENT_METRICS`.
            timeout_ms: how long it may take; `request_timeout_ms` if None.

        Raises:
            UnsupportedVersionError: the broker cannot list resources of these types.
            KafkaError: the resources cannot be listed for another reason.
        """
        return await self._running(timeout_ms).controller(
            "list the resources that have a configuration",
            ListConfigResourcesRequest(resource_types=[int(one) for one in types]),
            ListConfigResourcesResponse,
            lambda response: [messages.resource(row) for row in response.config_resources],
        )

    # Groups.

    async def list_consumer_groups(
        self,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> GroupListings:
        """All groups, by id ascending. Every broker is asked, since each knows the groups that it coordinates.

        Args:
            states: only groups in these states, such as "Stable" and "Empty" (Kafka 2.6 and later).
            types: only groups of these types: "classic", "consumer", "share" (Kafka 4.0 and later).
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error of a broker; otherwise it is in `errors`.

        Raises:
            KafkaError: a broker could not be asked.
        """
        found = await self._running(timeout_ms).brokers(
            "list the groups of broker",
            None,
            ListGroupsRequest(states_filter=list(states), types_filter=list(types)),
            ListGroupsResponse,
            lambda response, _: [
                GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
                for one in response.groups
            ],
        )
        listed, errors = _joined(found, raise_errors)
        groups = {one.group_id: one for one in listed}
        return GroupListings((groups[name] for name in sorted(groups)), errors)

    async def describe_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[GroupDescription]:
        """Groups of both protocols, with their members and the assignment of each member. Share groups are described by
        :meth:`describe_share_groups`.

        Args:
            group_ids: their names.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error; otherwise it is in its result.

        Raises:
            KafkaError: a group does not exist (GROUP_ID_NOT_FOUND), or cannot be described.
        """
        driver = self._running(timeout_ms)

        async def ask(asked: Asked[str]) -> dict[str, GroupDescription | KafkaError]:
            request = DescribeGroupsRequest(groups=asked.items)
            found = await driver.send(asked, request, DescribeGroupsResponse, messages.described_groups)
            newer = [name for name, one in found.items() if isinstance(one, UnsupportedVersionError)]
            if newer:
                by_epochs = ConsumerGroupDescribeRequest(group_ids=newer, include_authorized_operations=False)
                with suppress(UnsupportedVersionError):
                    found |= await driver.send(
                        asked, by_epochs, ConsumerGroupDescribeResponse, messages.described_by_epochs
                    )
            return found

        names = _names("describe_consumer_groups", group_ids)
        found = await driver.settle(GROUP, "describe group", names, ask)
        return list(results_of(found, GroupDescription, raise_errors).values())

    async def delete_consumer_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[GroupResult]:
        """Delete groups without members, of all types, with their offsets.

        Args:
            group_ids: their names.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other groups were deleted; otherwise it is in its result.

        Raises:
            KafkaError: a group does not exist (GROUP_ID_NOT_FOUND), or has members (NON_EMPTY_GROUP).
        """
        found = await self._running(timeout_ms).each(
            GROUP,
            "delete group",
            _names("delete_consumer_groups", group_ids),
            lambda names: DeleteGroupsRequest(groups_names=names),
            DeleteGroupsResponse,
            # Without the broker's message, which says the same as the remedy.
            lambda response, _: {
                one.group_id: refused(one.error_code, f"delete group {one.group_id!r}") or GroupResult(one.group_id)
                for one in response.results
            },
        )
        return list(results_of(found, GroupResult, raise_errors).values())

    async def remove_group_members(
        self,
        group_id: str,
        members: Iterable[str],
        timeout_ms: int | None = None,
        *,
        reason: str | None = None,
        raise_errors: bool = True,
    ) -> list[MemberResult]:
        """Remove members from a group of consumers: others get their partitions at once.

        You need this for a static member whose program has ended for good: it stays a member until its session is over.
        A program that still runs joins again.

        Args:
            group_id: the group.
            members: their group.instance.ids, or their member ids.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            reason: why, for the log of the coordinator and for `barnabas groups explain`.
            raise_errors: raise the first error, after all other members were removed; otherwise it is in its result.

        Raises:
            KafkaError: the group does not exist (GROUP_ID_NOT_FOUND), or does not have a member (UNKNOWN_MEMBER_ID).
        """
        names = list(dict.fromkeys(_names("remove_group_members", members)))
        (group,) = await self.describe_consumer_groups([group_id], timeout_ms)
        if not names:
            return []
        static = {one.instance_id for one in group.members if one.instance_id}
        leaving = [
            MemberIdentity(group_instance_id=name, reason=reason)
            if name in static
            else MemberIdentity(member_id=name, reason=reason)
            for name in names
        ]
        results = await self._running(timeout_ms).group(
            "remove members of group",
            group_id,
            LeaveGroupRequest(group_id=group_id, members=leaving),
            LeaveGroupResponse,
            lambda response, _: messages.removed_members(response, group_id, names),
        )
        return checked(results, raise_errors)

    # Committed offsets.

    async def list_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
        *,
        require_stable: bool = False,
        raise_errors: bool = True,
    ) -> Offsets:
        """The committed offsets of a group, by partition ascending; empty for a group that does not exist.

        Args:
            group_id: its name.
            partitions: only these, including those without a committed offset; all committed ones if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            require_stable: wait for the offsets of open transactions (KIP-447).
            raise_errors: raise the first error of a partition; otherwise it is in its result.

        Raises:
            KafkaError: the coordinator could not be asked, or refused.
        """
        offsets = await self._running(timeout_ms).group(
            "read the offsets of group",
            group_id,
            messages.offset_fetch_request(group_id, partitions, require_stable=require_stable),
            OffsetFetchResponse,
            lambda response, what: messages.fetched_offsets(response, group_id, what),
            at_most=OFFSETS_BY_NAME,
        )
        return checked(offsets, raise_errors)

    async def alter_consumer_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> PartitionResults:
        """Commit offsets for a group that has no members. A group that does not exist is created.

        Args:
            group_id: its name.
            offsets: for each partition the offset of the next record to read.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other offsets were committed; otherwise it is in its result.

        Raises:
            KafkaError: the group has members (UNKNOWN_MEMBER_ID), or the coordinator refused it for another reason.
            TypeError, ValueError: an offset is not valid.
        """
        driver = self._running(timeout_ms)
        given = offsets_of("alter_consumer_group_offsets", offsets)
        results = await driver.group(
            "set the offsets of group",
            group_id,
            messages.offset_commit_request(group_id, given),
            OffsetCommitResponse,
            lambda response, what: partition_results(f"{what} for", given, partitions_in(response.topics)),
            at_most=OFFSETS_BY_NAME,
        )
        return checked(results, raise_errors)

    async def delete_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> PartitionResults:
        """Delete the committed offsets of a group for partitions of topics that no member subscribes to (KIP-496).

        Args:
            group_id: its name.
            partitions: which.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other offsets were deleted; otherwise it is in its result.

        Raises:
            KafkaError: the group does not exist (GROUP_ID_NOT_FOUND), subscribes to the topic
                (GROUP_SUBSCRIBED_TO_TOPIC), or the coordinator refused it for another reason.
        """
        given = list(partitions)
        results = await self._running(timeout_ms).group(
            "delete offsets of group",
            group_id,
            OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
                    )
                    for topic, numbers in by_topic(given)
                ],
            ),
            OffsetDeleteResponse,
            lambda response, what: partition_results(f"{what} for", given, partitions_in(response.topics)),
        )
        return checked(results, raise_errors)

    # Share groups.

    async def describe_share_groups(
        self, group_ids: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[GroupDescription]:
        """Share groups (KIP-932), with their members and the assignment of each member.

        Args:
            group_ids: their names.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error; otherwise it is in its result.

        Raises:
            UnsupportedVersionError: the broker has no share groups.
            KafkaError: a group does not exist, or has another type (GROUP_ID_NOT_FOUND), or cannot be described.
        """
        found = await self._running(timeout_ms).each(
            GROUP,
            "describe share group",
            _names("describe_share_groups", group_ids),
            lambda names: ShareGroupDescribeRequest(group_ids=names, include_authorized_operations=False),
            ShareGroupDescribeResponse,
            messages.described_by_epochs,
        )
        return list(results_of(found, GroupDescription, raise_errors).values())

    async def list_share_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> dict[TopicPartition, ShareGroupOffset]:
        """The start offsets and the lag of a share group, by partition ascending.

        Args:
            group_id: its name.
            partitions: only these; all that the group has a state for if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error of a partition; otherwise it is in its result.

        Raises:
            KafkaError: the group does not exist, or has another type (GROUP_ID_NOT_FOUND), or the coordinator could
                not be asked.
        """
        offsets = await self._running(timeout_ms).group(
            "read the offsets of share group",
            group_id,
            shares.describe_offsets_request(group_id, partitions),
            DescribeShareGroupOffsetsResponse,
            lambda response, what: shares.described_offsets(response, group_id, what),
        )
        return checked(offsets, raise_errors)

    async def alter_share_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> PartitionResults:
        """Begin anew at other offsets, with a share group that has no members. Records from there on are delivered
        again, acknowledged or not.

        Args:
            group_id: its name.
            offsets: for each partition the offset of the first record to deliver.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other offsets were set; otherwise it is in its result.

        Raises:
            KafkaError: the group has members (NON_EMPTY_GROUP), does not exist (GROUP_ID_NOT_FOUND), or the coordinator
                refused it for another reason.
            TypeError, ValueError: an offset is not valid.
        """
        driver = self._running(timeout_ms)
        given = {tp: one.offset for tp, one in offsets_of("alter_share_group_offsets", offsets).items()}
        results = await driver.group(
            "set the offsets of share group",
            group_id,
            shares.alter_offsets_request(group_id, given),
            AlterShareGroupOffsetsResponse,
            lambda response, what: partition_results(
                f"{what} for",
                given,
                (
                    (TopicPartition(topic.topic_name, row.partition_index), row)
                    for topic in response.responses
                    for row in topic.partitions
                ),
            ),
        )
        return checked(results, raise_errors)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[TopicResult]:
        """Delete what a share group without members knows of topics: it begins anew where its configuration says.

        Args:
            group_id: its name.
            topics: their names.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other topics; otherwise it is in its result.

        Raises:
            KafkaError: the group has members (NON_EMPTY_GROUP), does not exist (GROUP_ID_NOT_FOUND), or the coordinator
                refused it for another reason.
        """
        driver = self._running(timeout_ms)
        names = list(dict.fromkeys(_names("delete_share_group_offsets", topics)))
        results = await driver.group(
            "delete offsets of share group",
            group_id,
            DeleteShareGroupOffsetsRequest(
                group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in names]
            ),
            DeleteShareGroupOffsetsResponse,
            lambda response, what: shares.deleted_offsets(response, names, f"{what} for topic"),
        )
        return checked(results, raise_errors)

    # The cluster.

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers.

        Raises:
            KafkaError: no broker answers.
        """
        self._running()
        try:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            response = await self._network.ask_any(request, DescribeClusterResponse)
        except UnsupportedVersionError:
            # Before Kafka 2.8, metadata has the same (KIP-700).
            cluster = await self._network.refresh()
            brokers = tuple(cluster.brokers[node] for node in sorted(cluster.brokers))
            return ClusterDescription(cluster.cluster_id or "", cluster.controller_id, brokers)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, "describe the cluster", response.error_message)
        described = sorted(response.brokers, key=lambda broker: broker.broker_id)
        return ClusterDescription(
            response.cluster_id,
            response.controller_id,
            tuple(Node(broker.broker_id, broker.host, broker.port, broker.rack) for broker in described),
        )

    async def describe_log_dirs(
        self, broker_ids: Iterable[int] | None = None, timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[BrokerLogDirs]:
        """The log directories of brokers, with the size of each replica, by node id ascending.

        Args:
            broker_ids: the brokers; all live ones if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error of a broker; otherwise it is in its result.

        Raises:
            KafkaError: a broker could not be asked.
        """
        found = await self._running(timeout_ms).brokers(
            "describe the log directories of broker",
            broker_ids,
            DescribeLogDirsRequest(topics=None),
            DescribeLogDirsResponse,
            messages.described_log_dirs,
        )
        return list(results_of(found, BrokerLogDirs, raise_errors).values())

    async def describe_conditions(
        self, broker_ids: Iterable[int] | None = None, timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[BrokerConditions]:
        """Conditions of brokers of Barnabas, by node id ascending: what is not possible now, and what to do.

        Args:
            broker_ids: the brokers; all live ones if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error of a broker; otherwise it is in its result.

        Raises:
            KafkaError: a broker could not be asked.
        """
        found = await self._running(timeout_ms).brokers(
            "describe the conditions of broker",
            broker_ids,
            DescribeClusterRequest(include_cluster_authorized_operations=False),
            DescribeClusterResponse,
            messages.described_conditions,
        )
        # Before Kafka 2.8, brokers do not have the request.
        results = results_of(
            found,
            lambda node, error: BrokerConditions(node, None if isinstance(error, UnsupportedVersionError) else error),
            raise_errors,
        )
        return list(results.values())

    # Transactions.

    async def list_transactions(
        self,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        *,
        duration_ms: int | None = None,
        pattern: str | None = None,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> TransactionListings:
        """All transactional ids, ascending. Every broker is asked, since each knows those that it coordinates.

        Args:
            states: only those in these states, such as "Ongoing".
            producer_ids: only those of these producer ids.
            duration_ms: only transactions that have been open for longer, in milliseconds (Kafka 3.8 and later).
            pattern: only ids that match this regular expression, of RE2's syntax (Kafka 4.1 and later).
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error of a broker; otherwise it is in `errors`.

        Raises:
            KafkaError: a broker could not be asked.
        """
        found = await self._running(timeout_ms).brokers(
            "list the transactions of broker",
            None,
            ListTransactionsRequest(
                state_filters=list(states),
                producer_id_filters=list(producer_ids),
                duration_filter=-1 if duration_ms is None else duration_ms,
                transactional_id_pattern=pattern,
            ),
            ListTransactionsResponse,
            lambda response, node: [
                TransactionListing(one.transactional_id, one.producer_id, one.transaction_state, node)
                for one in response.transaction_states
            ],
        )
        listed, errors = _joined(found, raise_errors)
        return TransactionListings(sorted(listed, key=lambda one: one.transactional_id), errors)

    async def describe_transactions(
        self, transactional_ids: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[TransactionDescription]:
        """Transactions with their producer, times and partitions.

        Args:
            transactional_ids: the names of the producers' transactions.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error; otherwise it is in its result.

        Raises:
            KafkaError: a transactional id is not known, or its coordinator did not answer.
        """
        found = await self._running(timeout_ms).each(
            TRANSACTION,
            "describe transaction",
            transactional_ids,
            lambda names: DescribeTransactionsRequest(transactional_ids=names),
            DescribeTransactionsResponse,
            lambda response, asked: asked.outcomes(
                ((one.transactional_id, one) for one in response.transaction_states),
                lambda one: transactions.described(one, asked.node),
            ),
        )
        return list(results_of(found, TransactionDescription, raise_errors).values())

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> dict[TopicPartition, PartitionProducers]:
        """The producers that partitions remember: those with an open transaction, and others that were active lately.

        Args:
            partitions: which.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            KafkaError: a leader did not answer.
        """
        found = await self._running(timeout_ms).each(
            LEADER,
            "describe the producers of",
            partitions,
            lambda those: DescribeProducersRequest(
                topics=[
                    DescribeProducersTopicRequest(name=name, partition_indexes=numbers)
                    for name, numbers in by_topic(those)
                ]
            ),
            DescribeProducersResponse,
            lambda response, asked: asked.outcomes(
                partitions_in(response.topics), lambda row: transactions.producers(row.active_producers)
            ),
        )
        return results_of(found, lambda _, error: PartitionProducers(error=error), raise_errors)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int = 0,
        timeout_ms: int | None = None,
    ) -> None:
        """Write an ABORT marker into one partition, past the coordinator. It ends a transaction that *hangs*: one that
        its coordinator does not know. A transaction that it knows is ended by :meth:`fence_producers`.

        Args:
            partition: with the open transaction.
            producer_id: see :meth:`describe_producers`, as for the epochs.
            producer_epoch: of the producer id.
            coordinator_epoch: of its last marker.
            timeout_ms: how long it may take; `request_timeout_ms` if None.

        Raises:
            KafkaError: the leader refused it.
        """
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=max(coordinator_epoch, 0),
        )
        found = await self._running(timeout_ms).each(
            LEADER,
            "abort the transaction in",
            [partition],
            lambda _: WriteTxnMarkersRequest(markers=[marker]),
            WriteTxnMarkersResponse,
            lambda response, asked: asked.outcomes(
                (row for one in response.markers for row in partitions_in(one.topics)), lambda _: PartitionResult()
            ),
        )
        results_of(found, lambda _, error: PartitionResult(error), raise_errors=True)

    async def end_transactions(
        self, prepared: Iterable[PreparedTransaction], *, committed: bool, timeout_ms: int | None = None
    ) -> dict[PreparedTransaction, KafkaError | None]:
        """Commit or abort transactions of :meth:`Producer.prepare_transaction`. No producer id is asked for, so nothing
        is fenced; a second call with the same arguments changes nothing.

        Args:
            prepared: at most one of a transactional id.
            committed: False aborts them.
            timeout_ms: how long it may take; `request_timeout_ms` if None.

        Returns:
            For each the error, None if it is decided. INVALID_PRODUCER_EPOCH or PRODUCER_FENCED: it is aborted, or
            another producer has taken over; a transaction whose decision was not answered may also be ended.

        Raises:
            ValueError: two have the same transactional id.
            KafkaError: no broker answers.
        """
        given = list(prepared)
        by_name = {one.transactional_id: one for one in given}
        if len(by_name) != len(given):
            raise ValueError("end_transactions: two of them have the same transactional id")
        driver = self._running(timeout_ms)

        async def ask(asked: Asked[str]) -> dict[str, bool | KafkaError]:
            (name,) = asked.items
            request, at_most = transactions.end_request(by_name[name], committed=committed)
            return await driver.send(asked, request, EndTxnResponse, lambda _, asked: {name: True}, at_most)

        what = f"{'commit' if committed else 'abort'} the prepared transaction of"
        found = await driver.settle(TRANSACTION, what, by_name, ask, alone=True)
        return {by_name[name]: one if isinstance(one, KafkaError) else None for name, one in found.items()}

    async def fence_producers(
        self, transactional_ids: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[FencedProducer]:
        """Fence the producers of transactional ids, and abort their open transactions.

        Args:
            transactional_ids: the names of the producers' transactions; the coordinator creates those it does not know.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error; otherwise it is in its result.

        Raises:
            KafkaError: a coordinator refused it, or did not answer.
        """
        found = await self._running(timeout_ms).each(
            TRANSACTION,
            "fence the producer of",
            transactional_ids,
            lambda names: transactions.fence_request(*names),
            InitProducerIdResponse,
            lambda response, asked: {
                name: FencedProducer(name, response.producer_id, response.producer_epoch)
                for name in asked.items
                if response.producer_id >= 0
            },
            alone=True,
        )
        return list(results_of(found, lambda name, error: FencedProducer(name, error=error), raise_errors).values())

    # Users.

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[UserScramCredentials]:
        """The users of SCRAM, by name, with their mechanisms.

        Args:
            users: their names; all if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error; otherwise it is in its result.

        Raises:
            KafkaError: a user does not exist (RESOURCE_NOT_FOUND) or is named twice, or the broker refused it.
        """
        names = None if users is None else _names("describe_user_scram_credentials", users)
        results = await self._running(timeout_ms).controller(
            "describe users",
            DescribeUserScramCredentialsRequest(users=None if names is None else [UserName(name=one) for one in names]),
            DescribeUserScramCredentialsResponse,
            described_users,
        )
        return checked(results, raise_errors)

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> list[UserResult]:
        """Set and delete the credentials of users. Brokers accept one change of a user at a time.

        Args:
            alterations: what to set and what to delete.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other users were changed; otherwise it is in its result.

        Raises:
            KafkaError: a credential to delete does not exist (RESOURCE_NOT_FOUND), a user is there twice
                (DUPLICATE_RESOURCE), or the broker refused it.
        """
        driver = self._running(timeout_ms)
        # In a thread: the hash function runs thousands of times for each user.
        request = await asyncio.to_thread(alter_users_request, list(alterations))
        results = await driver.controller(
            "change users",
            request,
            AlterUserScramCredentialsResponse,
            lambda response: [
                UserResult(one.user, failure(one, f"change user {one.user!r}"))
                for one in sorted(response.results, key=lambda one: one.user)
            ],
        )
        return checked(results, raise_errors)

    # Quotas.

    async def describe_client_quotas(
        self,
        entity: Mapping[str, str | None] | None = None,
        *,
        any_of: Iterable[str] = (),
        strict: bool = False,
        timeout_ms: int | None = None,
    ) -> list[ClientQuotas]:
        """The quotas of users, clients and addresses (KIP-546).

        Args:
            entity: names by type, "user", "client-id" or "ip", that an entity must have; None is the default of the
                type. All if `entity` is None.
            any_of: types of which an entity must have any name.
            strict: leave out entities that have other types as well.
            timeout_ms: how long it may take; `request_timeout_ms` if None.

        Raises:
            KafkaError: the broker refused it.
        """
        return await self._running(timeout_ms).controller(
            "describe quotas",
            describe_quotas_request(entity or {}, any_of, strict=strict),
            DescribeClientQuotasResponse,
            described_quotas,
        )

    async def alter_client_quotas(
        self,
        alterations: Iterable[ClientQuotaAlteration],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
        raise_errors: bool = True,
    ) -> list[ClientQuotaResult]:
        """Set and remove quotas (KIP-546).

        Args:
            alterations: what to change, each entity once.
            validate_only: only have the broker check it.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other entities were changed; otherwise it is in its result.

        Raises:
            KafkaError: a quota is not valid (INVALID_REQUEST), or the broker refused it.
        """
        results = await self._running(timeout_ms).controller(
            "change quotas",
            alter_quotas_request(alterations, validate_only=validate_only),
            AlterClientQuotasResponse,
            altered_quotas,
        )
        return checked(results, raise_errors)

    # Replicas and leaders.

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> PartitionResults:
        """Begin to move replicas to other brokers, or cancel that (KIP-455).

        Returns when the controller has accepted it. :meth:`list_partition_reassignments` shows which are not completed.

        Args:
            reassignments: for each partition the node ids of its new replicas, the preferred leader first; None cancels
                the reassignment of the partition.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other partitions; otherwise it is in its result.

        Raises:
            KafkaError: a partition does not exist, is not being reassigned, or cannot have these replicas.
        """
        driver = self._running(timeout_ms)

        def partition(topic: str, number: int) -> ReassignablePartition:
            replicas = reassignments[TopicPartition(topic, number)]
            return ReassignablePartition(
                partition_index=number, replicas=None if replicas is None else [int(node) for node in replicas]
            )

        results = await driver.controller(
            "reassign partitions",
            AlterPartitionReassignmentsRequest(
                topics=[
                    ReassignableTopic(name=topic, partitions=[partition(topic, number) for number in numbers])
                    for topic, numbers in by_topic(reassignments)
                ],
                timeout_ms=driver.broker_ms,
            ),
            AlterPartitionReassignmentsResponse,
            lambda response: partition_results("reassign", reassignments, partitions_in(response.responses)),
        )
        return checked(results, raise_errors)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The partitions whose replicas are being moved, ascending.

        Args:
            partitions: only these; all if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.

        Raises:
            KafkaError: the controller could not be asked.
        """
        driver = self._running(timeout_ms)
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(partitions)
            ]
        return await driver.controller(
            "list reassignments",
            ListPartitionReassignmentsRequest(topics=topics, timeout_ms=driver.broker_ms),
            ListPartitionReassignmentsResponse,
            lambda response: {
                tp: PartitionReassignment(tuple(row.replicas), tuple(row.adding_replicas), tuple(row.removing_replicas))
                for tp, row in sorted(partitions_in(response.topics), key=itemgetter(0))
            },
        )

    async def create_acls(
        self, acls: Iterable[AclBinding], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[AclResult]:
        """Create ACLs. One that exists already stays as it is.

        Args:
            acls: what to create.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all others were created; otherwise it is in its result.

        Raises:
            KafkaError: the cluster has no authorizer, this client may not change ACLs, or an ACL is not valid.
        """
        wanted = list(acls)
        results = await self._running(timeout_ms).controller(
            "create ACLs",
            CreateAclsRequest(creations=[acl_messages.creation(each) for each in wanted]),
            CreateAclsResponse,
            lambda response: [
                AclResult(acl, failure(result, f"create ACL {acl_messages.shown(acl)}"))
                for acl, result in zip(wanted, response.results, strict=True)
            ],
        )
        return checked(results, raise_errors)

    async def describe_acls(
        self, acl_filter: AclBindingFilter | None = None, timeout_ms: int | None = None
    ) -> list[AclBinding]:
        """The ACLs that a filter finds, sorted by their resources.

        Args:
            acl_filter: which; all if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.

        Raises:
            KafkaError: the cluster has no authorizer, or this client may not see ACLs.
        """
        return await self._running(timeout_ms).controller(
            "describe ACLs",
            DescribeAclsRequest(**acl_messages.fields(acl_filter or AclBindingFilter())),
            DescribeAclsResponse,
            acl_messages.described_acls,
        )

    async def delete_acls(
        self, acl_filters: Iterable[AclBindingFilter], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[AclResult]:
        """Delete the ACLs that filters find.

        Args:
            acl_filters: a filter without any value finds all ACLs.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all others were deleted; otherwise it is in its result.

        Returns:
            The ACLs that were found.

        Raises:
            KafkaError: the cluster has no authorizer, or this client may not change ACLs.
        """
        results = await self._running(timeout_ms).controller(
            "delete ACLs",
            DeleteAclsRequest(filters=[DeleteAclsFilter(**acl_messages.fields(each)) for each in acl_filters]),
            DeleteAclsResponse,
            acl_messages.deleted_acls,
        )
        return checked(results, raise_errors)

    async def describe_eligible_leaders(
        self, topics: Iterable[str], timeout_ms: int | None = None
    ) -> dict[TopicPartition, EligibleLeaders]:
        """The replicas outside of the ISR that may lead partitions: the first 2,000 partitions of these topics.

        Args:
            topics: their names.
            timeout_ms: how long it may take; `request_timeout_ms` if None.

        Raises:
            KafkaError: the broker is too old to know them, or does not answer.
        """
        names = _names("describe_eligible_leaders", topics)
        return await self._running(timeout_ms).controller(
            "describe eligible leaders",
            DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names]),
            DescribeTopicPartitionsResponse,
            lambda response: {
                TopicPartition(topic.name or "", one.partition_index): EligibleLeaders(
                    tuple(one.eligible_leader_replicas or ()), tuple(one.last_known_elr or ())
                )
                for topic in response.topics
                for one in topic.partitions
            },
        )

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: int | None = None,
        *,
        raise_errors: bool = True,
    ) -> PartitionResults:
        """Elect the leaders of partitions.

        Args:
            election_type: which replica becomes the leader.
            partitions: which; all that need it if None.
            timeout_ms: how long it may take; `request_timeout_ms` if None.
            raise_errors: raise the first error, after all other partitions; otherwise it is in its result.

        Raises:
            KafkaError: the partition has the right leader already (ELECTION_NOT_NEEDED), the replica cannot lead
                (PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE), or the controller refused it for
                another reason.
        """
        driver = self._running(timeout_ms)
        asked = None if partitions is None else list(partitions)
        topics = None
        if asked is not None:
            topics = [TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(asked)]
        results = await driver.controller(
            "elect leaders",
            ElectLeadersRequest(
                election_type=ElectionType(election_type), topic_partitions=topics, timeout_ms=driver.broker_ms
            ),
            ElectLeadersResponse,
            lambda response: partition_results(
                "elect the leader of",
                asked,
                (
                    (TopicPartition(topic.topic, row.partition_id), row)
                    for topic in response.replica_election_results
                    for row in topic.partition_result
                ),
            ),
        )
        return checked(results, raise_errors)

    # Inside.

    def _running(self, timeout_ms: int | None = None) -> Driver:
        """Sends the requests of a call that may take `timeout_ms`, or `request_timeout_ms` if None.

        Raises:
            IllegalStateError: this client is not started, or closed.
            ValueError: no time is left.
        """
        self._life.check_running()
        milliseconds = self._config.request_timeout_ms if timeout_ms is None else timeout_ms
        if milliseconds < 1:
            raise ValueError(f"timeout_ms is {timeout_ms}: give milliseconds, at least 1")
        return Driver(self._network, milliseconds)


def _names(what: str, names: Iterable[str]) -> list[str]:
    """Check a list of names; a single name would otherwise be read as a list of its letters.

    Raises:
        TypeError: `names` is not a list of names.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{what}: {names!r}: give a list of names")
    listed = list(names)
    if not all(isinstance(name, str) for name in listed):
        raise TypeError(f"{what}: {listed!r}: give names, which are strings")
    return listed


def _joined(found: Mapping[int, list[V] | KafkaError], raise_errors: bool) -> tuple[list[V], list[KafkaError]]:
    """The lists of all brokers in one, and the errors of brokers; with `raise_errors` raise the first."""
    errors = [one for one in found.values() if isinstance(one, KafkaError)]
    if raise_errors:
        raise_first(errors)
    return [one for those in found.values() if not isinstance(those, KafkaError) for one in those], errors
