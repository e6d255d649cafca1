"""The admin client: topics, configurations, groups, committed offsets and the cluster.

A call about several items does what it can for each of them, and then raises the first error, with the others as its
notes. With ``raise_errors=False`` it returns a result for each item instead, with its `error`. Names are aiokafka's
where aiokafka has them, else those of Kafka's ``Admin.java``.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, Unpack

from barnabas_client.admin import acls as acl_messages
from barnabas_client.admin import messages, shares, transactions
from barnabas_client.admin.acls import AclBinding, AclBindingFilter, AclResult
from barnabas_client.admin.driver import CoordinatorType, Driver
from barnabas_client.admin.messages import Offsets, PartitionResults
from barnabas_client.admin.quotas import (
    ClientQuotaAlteration,
    ClientQuotaResult,
    ClientQuotas,
    alter_quotas_request,
    altered_quotas,
    describe_quotas_request,
    described_quotas,
)
from barnabas_client.admin.refusals import checked, not_mentioned, raise_first, refusal, results_of
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
    OffsetSpec,
    PartitionProducer,
    PartitionProducers,
    PartitionReassignment,
    PartitionResult,
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
    altered_users,
    describe_users_request,
    described_users,
)
from barnabas_client.checks import offsets_of
from barnabas_client.config import DEFAULT_SERVERS, ClientConfig, ConnectionSettings, parse_servers
from barnabas_client.errors import UnsupportedVersionError, error_for
from barnabas_client.keywords import takes
from barnabas_client.lifecycle import AsyncOnly, Life, State
from barnabas_client.network.metadata import Cluster, Node, TopicInfo
from barnabas_client.network.network import Network
from barnabas_client.network.versions import OFFSETS_BY_NAME
from barnabas_client.structs import OffsetAndMetadata, PreparedTransaction, TopicPartition
from barnabas_client.tasks import uninterrupted
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.alter_client_quotas import AlterClientQuotasResponse
from barnabas_protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from barnabas_protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from barnabas_protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsResponse
from barnabas_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from barnabas_protocol.messages.create_acls import CreateAclsResponse
from barnabas_protocol.messages.create_partitions import CreatePartitionsResponse
from barnabas_protocol.messages.create_topics import CreateTopicsResponse
from barnabas_protocol.messages.delete_acls import DeleteAclsResponse
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.delete_records import DeleteRecordsResponse
from barnabas_protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsResponse
from barnabas_protocol.messages.delete_topics import DeleteTopicsResponse
from barnabas_protocol.messages.describe_acls import DescribeAclsResponse
from barnabas_protocol.messages.describe_client_quotas import DescribeClientQuotasResponse
from barnabas_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas_protocol.messages.describe_configs import DescribeConfigsResponse
from barnabas_protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from barnabas_protocol.messages.describe_producers import DescribeProducersResponse
from barnabas_protocol.messages.describe_share_group_offsets import DescribeShareGroupOffsetsResponse
from barnabas_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponse
from barnabas_protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResponse
from barnabas_protocol.messages.elect_leaders import ElectLeadersResponse
from barnabas_protocol.messages.end_txn import EndTxnResponse
from barnabas_protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdResponse
from barnabas_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas_protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from barnabas_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.list_offsets import ListOffsetsResponse
from barnabas_protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from barnabas_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas_protocol.messages.offset_commit import OffsetCommitResponse
from barnabas_protocol.messages.offset_delete import OffsetDeleteResponse
from barnabas_protocol.messages.offset_fetch import OffsetFetchResponse
from barnabas_protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from barnabas_protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from barnabas_protocol.registry import ApiKey

__all__ = ["Admin"]

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
        response = await driver.ask_controller(
            messages.create_topics_request(new_topics, driver.broker_ms, validate_only=validate_only),
            CreateTopicsResponse,
        )
        return checked(messages.created_topics(response), raise_errors)

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
        response = await driver.ask_controller(
            messages.delete_topics_request(names, driver.broker_ms), DeleteTopicsResponse
        )
        return checked(messages.deleted_topics(response, names), raise_errors)

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
        response = await driver.ask_controller(
            messages.create_partitions_request(topic_partitions, driver.broker_ms, validate_only=validate_only),
            CreatePartitionsResponse,
        )
        return checked(messages.created_partitions(response, topic_partitions), raise_errors)

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

        async def ask(
            cluster: Cluster, leader: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, DeletedRecords | KafkaError]:
            request = messages.delete_records_request(partitions, records_to_delete, driver.broker_ms)
            return messages.deleted_records(await self._network.ask(leader, request, DeleteRecordsResponse))

        found = await driver.ask_leaders("delete records of", list(records_to_delete), ask)
        return checked(
            {tp: DeletedRecords(error=one) if isinstance(one, KafkaError) else one for tp, one in found.items()},
            raise_errors,
        )

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

        async def ask(
            cluster: Cluster, leader: int, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, ListedOffset | KafkaError]:
            if any(specs[tp] == OffsetSpec.MAX_TIMESTAMP for tp in partitions):
                await driver.require_version(
                    leader, ApiKey.LIST_OFFSETS, _MAX_TIMESTAMP_VERSION, "the newest timestamp"
                )
            times = {tp: specs[tp] for tp in partitions}
            request = messages.list_offsets_request(cluster, times, driver.milliseconds, read_committed=read_committed)
            return messages.listed_offsets(await self._network.ask(leader, request, ListOffsetsResponse))

        listed = await driver.ask_leaders("list offsets of", list(specs), ask)
        return checked(
            {tp: ListedOffset(error=one) if isinstance(one, KafkaError) else one for tp, one in listed.items()},
            raise_errors,
        )

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
        driver, what = self._running(timeout_ms), "describe the configuration of"
        wanted = None if keys is None else list(keys)

        async def ask(node: int | None, those: list[ConfigResource]) -> dict[ConfigResource, ConfigResult | KafkaError]:
            request = messages.describe_configs_request(
                those, wanted, synonyms=include_synonyms, documentation=include_documentation
            )
            return messages.described_configs(await driver.ask_node(node, request, DescribeConfigsResponse), what)

        found = await driver.ask_owners(what, resources, messages.config_owner, ask)
        return _config_results(found, raise_errors)

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
        driver, what = self._running(timeout_ms), "change the configuration of"
        ops = {resource: list(those) for resource, those in changes.items()}

        async def ask(node: int | None, those: list[ConfigResource]) -> dict[ConfigResource, ConfigResult | KafkaError]:
            request = messages.alter_configs_request(those, ops, validate_only=validate_only)
            return messages.altered_configs(await driver.ask_node(node, request, IncrementalAlterConfigsResponse), what)

        found = await driver.ask_owners(what, ops, messages.config_owner, ask)
        return _config_results(found, raise_errors)

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
        request = ListConfigResourcesRequest(resource_types=[int(one) for one in types])
        response = await self._running(timeout_ms).ask_controller(request, ListConfigResourcesResponse)
        if response.error_code != ErrorCode.NONE:
            raise refusal(response.error_code, "list the resources that have a configuration")
        return [ConfigResource(ResourceType(one.resource_type), one.resource_name) for one in response.config_resources]

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
        driver = self._running(timeout_ms)
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        async def ask(node: int) -> list[GroupListing] | KafkaError:
            response = await self._network.ask(node, request, ListGroupsResponse)
            if response.error_code != ErrorCode.NONE:
                return refusal(response.error_code, f"list the groups of broker {node}")
            return [
                GroupListing(one.group_id, one.protocol_type, one.group_state, one.group_type)
                for one in response.groups
            ]

        found = await driver.ask_brokers("list the groups of broker", ask)
        groups = {one.group_id: one for those in found.values() if not isinstance(those, KafkaError) for one in those}
        errors = [one for one in found.values() if isinstance(one, KafkaError)]
        if raise_errors:
            raise_first(errors)
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
        driver, network = self._running(timeout_ms), self._network

        async def ask(node: int, names: list[str]) -> dict[str, GroupDescription | KafkaError]:
            response = await network.ask(node, DescribeGroupsRequest(groups=names), DescribeGroupsResponse)
            coordinator = network.cluster.brokers.get(node)
            found = messages.described_groups(response, coordinator)
            newer = messages.of_consumer_protocol(response)
            if newer:
                request = ConsumerGroupDescribeRequest(group_ids=newer, include_authorized_operations=False)
                with suppress(UnsupportedVersionError):
                    described = await network.ask(node, request, ConsumerGroupDescribeResponse)
                    found |= messages.described_by_epochs(described, coordinator)
            return found

        names = _names("describe_consumer_groups", group_ids)
        found = await driver.ask_coordinators("describe group", names, ask)
        return checked(results_of(found, GroupDescription), raise_errors)

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
        driver = self._running(timeout_ms)

        async def ask(node: int, names: list[str]) -> dict[str, GroupResult | KafkaError]:
            request = DeleteGroupsRequest(groups_names=names)
            return messages.deleted_groups(await self._network.ask(node, request, DeleteGroupsResponse))

        names = _names("delete_consumer_groups", group_ids)
        found = await driver.ask_coordinators("delete group", names, ask)
        return checked(results_of(found, GroupResult), raise_errors)

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
        driver, what = self._running(timeout_ms), "remove members of group"
        (group,) = await self.describe_consumer_groups([group_id], timeout_ms)
        static = {one.instance_id for one in group.members if one.instance_id}
        leaving = [
            MemberIdentity(group_instance_id=name, reason=reason)
            if name in static
            else MemberIdentity(member_id=name, reason=reason)
            for name in names
        ]
        request = LeaveGroupRequest(group_id=group_id, members=leaving)

        async def ask(node: int) -> list[MemberResult] | KafkaError:
            response = await self._network.ask(node, request, LeaveGroupResponse)
            return messages.removed_members(response, group_id, names)

        found = await driver.ask_coordinator(what, group_id, ask) if names else []
        return checked(found, raise_errors)

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
        driver, what = self._running(timeout_ms), "read the offsets of group"
        request = messages.offset_fetch_request(group_id, partitions, require_stable=require_stable)

        async def ask(node: int) -> Offsets | KafkaError:
            response = await self._network.ask(node, request, OffsetFetchResponse, at_most=OFFSETS_BY_NAME)
            label = f"{what} {group_id!r}"
            return messages.fetched_offsets(response, label).get(group_id, not_mentioned(label))

        offsets = await driver.ask_coordinator(what, group_id, ask)
        return checked({tp: offsets[tp] for tp in sorted(offsets)}, raise_errors)

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
        driver, what = self._running(timeout_ms), "set the offsets of group"
        given = offsets_of("alter_consumer_group_offsets", offsets)
        request = messages.offset_commit_request(group_id, given)

        async def ask(node: int) -> PartitionResults | KafkaError:
            response = await self._network.ask(node, request, OffsetCommitResponse, at_most=OFFSETS_BY_NAME)
            return messages.committed_offsets(response, f"{what} {group_id!r}")

        changed = await driver.ask_coordinator(what, group_id, ask)
        return _partition_results(f"{what} {group_id!r}", given, changed, raise_errors)

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
        driver, what = self._running(timeout_ms), "delete offsets of group"
        given = list(partitions)
        request = messages.offset_delete_request(group_id, given)

        async def ask(node: int) -> PartitionResults | KafkaError:
            response = await self._network.ask(node, request, OffsetDeleteResponse)
            return messages.deleted_offsets(response, f"{what} {group_id!r}")

        changed = await driver.ask_coordinator(what, group_id, ask)
        return _partition_results(f"{what} {group_id!r}", given, changed, raise_errors)

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
        driver, network = self._running(timeout_ms), self._network

        async def ask(node: int, names: list[str]) -> dict[str, GroupDescription | KafkaError]:
            request = ShareGroupDescribeRequest(group_ids=names, include_authorized_operations=False)
            response = await network.ask(node, request, ShareGroupDescribeResponse)
            return messages.described_by_epochs(response, network.cluster.brokers.get(node))

        names = _names("describe_share_groups", group_ids)
        found = await driver.ask_coordinators("describe share group", names, ask)
        return checked(results_of(found, GroupDescription), raise_errors)

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
        driver, what = self._running(timeout_ms), "read the offsets of share group"
        request = shares.describe_offsets_request(group_id, partitions)

        async def ask(node: int) -> dict[TopicPartition, ShareGroupOffset] | KafkaError:
            response = await self._network.ask(node, request, DescribeShareGroupOffsetsResponse)
            label = f"{what} {group_id!r}"
            return shares.described_offsets(response, label).get(group_id, not_mentioned(label))

        offsets = await driver.ask_coordinator(what, group_id, ask)
        return checked({tp: offsets[tp] for tp in sorted(offsets)}, raise_errors)

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
        driver, what = self._running(timeout_ms), "set the offsets of share group"
        given = {tp: one.offset for tp, one in offsets_of("alter_share_group_offsets", offsets).items()}
        request = shares.alter_offsets_request(group_id, given)

        async def ask(node: int) -> PartitionResults | KafkaError:
            response = await self._network.ask(node, request, AlterShareGroupOffsetsResponse)
            return shares.altered_offsets(response, f"{what} {group_id!r}")

        changed = await driver.ask_coordinator(what, group_id, ask)
        return _partition_results(f"{what} {group_id!r}", given, changed, raise_errors)

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
        driver, what = self._running(timeout_ms), "delete offsets of share group"
        names = _names("delete_share_group_offsets", topics)
        request = shares.delete_offsets_request(group_id, names)

        async def ask(node: int) -> dict[str, TopicResult] | KafkaError:
            response = await self._network.ask(node, request, DeleteShareGroupOffsetsResponse)
            return shares.deleted_offsets(response, f"{what} {group_id!r}")

        found = await driver.ask_coordinator(what, group_id, ask)
        return checked(
            [
                found.get(name) or TopicResult(name, not_mentioned(f"{what} {group_id!r} for topic {name!r}"))
                for name in dict.fromkeys(names)
            ],
            raise_errors,
        )

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
        driver, what = self._running(timeout_ms), "describe the log directories of broker"
        request = DescribeLogDirsRequest(topics=None)

        async def ask(node: int) -> BrokerLogDirs | KafkaError:
            return messages.described_log_dirs(node, await self._network.ask(node, request, DescribeLogDirsResponse))

        found = await driver.ask_brokers(what, ask, broker_ids)
        return checked(results_of(dict(sorted(found.items())), BrokerLogDirs), raise_errors)

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
        driver = self._running(timeout_ms)
        request = DescribeClusterRequest(include_cluster_authorized_operations=False)

        async def ask(node: int) -> BrokerConditions | KafkaError:
            try:
                response = await self._network.ask(node, request, DescribeClusterResponse)
            except UnsupportedVersionError:
                return BrokerConditions(node)  # before Kafka 2.8
            return messages.described_conditions(node, response)

        what = "describe the conditions of broker"
        found = await driver.ask_brokers(what, ask, broker_ids)
        return checked(results_of(dict(sorted(found.items())), BrokerConditions), raise_errors)

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
        driver = self._running(timeout_ms)
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if duration_ms is None else duration_ms,
            transactional_id_pattern=pattern,
        )

        async def ask(node: int) -> list[TransactionListing] | KafkaError:
            return transactions.listed(node, await self._network.ask(node, request, ListTransactionsResponse))

        found = await driver.ask_brokers("list the transactions of broker", ask)
        listings = [one for those in found.values() if not isinstance(those, KafkaError) for one in those]
        errors = [one for one in found.values() if isinstance(one, KafkaError)]
        if raise_errors:
            raise_first(errors)
        return TransactionListings(sorted(listings, key=lambda one: one.transactional_id), errors)

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

        async def ask(node: int, names: list[str]) -> dict[str, TransactionDescription | KafkaError]:
            request = DescribeTransactionsRequest(transactional_ids=names)
            return transactions.described(node, await self._network.ask(node, request, DescribeTransactionsResponse))

        found = await self._running(timeout_ms).ask_coordinators(
            "describe transaction",
            transactional_ids,
            ask,
            of=CoordinatorType.TRANSACTION,
        )
        return checked(results_of(found, TransactionDescription), raise_errors)

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

        async def ask(
            cluster: Cluster, leader: int, those: list[TopicPartition]
        ) -> dict[TopicPartition, list[PartitionProducer] | KafkaError]:
            request = transactions.describe_producers_request(those)
            return transactions.producers(await self._network.ask(leader, request, DescribeProducersResponse))

        found = await self._running(timeout_ms).ask_leaders("describe the producers of", list(partitions), ask)
        return checked(
            {
                tp: PartitionProducers(error=one)
                if isinstance(one, KafkaError)
                else PartitionProducers(tuple(sorted(one, key=lambda known: known.producer_id)))
                for tp, one in found.items()
            },
            raise_errors,
        )

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

        async def ask(
            cluster: Cluster, leader: int, those: list[TopicPartition]
        ) -> dict[TopicPartition, bool | KafkaError]:
            request = transactions.abort_request(partition, producer_id, producer_epoch, coordinator_epoch)
            return transactions.aborted(await self._network.ask(leader, request, WriteTxnMarkersResponse))

        found = await self._running(timeout_ms).ask_leaders("abort the transaction in", [partition], ask)
        outcome = found[partition]
        if isinstance(outcome, KafkaError):
            raise outcome

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

        async def end(node: int, name: str) -> bool | KafkaError:
            request, at_most = transactions.end_request(by_name[name], committed=committed)
            response = await self._network.ask(node, request, EndTxnResponse, at_most=at_most)
            return transactions.ended(by_name[name], response, committed=committed)

        async def ask(node: int, names: list[str]) -> dict[str, bool | KafkaError]:
            return {name: await end(node, name) for name in names}

        verb = "commit" if committed else "abort"
        found = await self._running(timeout_ms).ask_coordinators(
            f"{verb} the prepared transaction of",
            by_name,
            ask,
            of=CoordinatorType.TRANSACTION,
        )
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

        async def fence(node: int, name: str) -> FencedProducer | KafkaError:
            request = transactions.fence_request(name)
            return transactions.fenced(name, await self._network.ask(node, request, InitProducerIdResponse))

        async def ask(node: int, names: list[str]) -> dict[str, FencedProducer | KafkaError]:
            return {name: await fence(node, name) for name in names}

        found = await self._running(timeout_ms).ask_coordinators(
            "fence the producer of",
            transactional_ids,
            ask,
            of=CoordinatorType.TRANSACTION,
        )
        return checked(results_of(found, lambda name, error: FencedProducer(name, error=error)), raise_errors)

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
        response = await self._running(timeout_ms).ask_controller(
            describe_users_request(names), DescribeUserScramCredentialsResponse
        )
        return checked(described_users(response), raise_errors)

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
        driver, wanted = self._running(timeout_ms), list(alterations)
        # In a thread: the hash function runs thousands of times for each user.
        request = await asyncio.to_thread(
            alter_users_request,
            [one for one in wanted if isinstance(one, UserScramCredentialDeletion)],
            [one for one in wanted if isinstance(one, UserScramCredentialUpsertion)],
        )
        response = await driver.ask_controller(request, AlterUserScramCredentialsResponse)
        return checked(altered_users(response), raise_errors)

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
        response = await self._running(timeout_ms).ask_controller(
            describe_quotas_request(entity or {}, any_of, strict=strict), DescribeClientQuotasResponse
        )
        return described_quotas(response)

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
        response = await self._running(timeout_ms).ask_controller(
            alter_quotas_request(list(alterations), validate_only=validate_only), AlterClientQuotasResponse
        )
        return checked(altered_quotas(response), raise_errors)

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
        response = await driver.ask_controller(
            messages.reassignments_request(reassignments, driver.broker_ms), AlterPartitionReassignmentsResponse
        )
        found = messages.altered_reassignments(response)
        if isinstance(found, KafkaError):
            raise found
        return _partition_results("reassign", reassignments, found, raise_errors)

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
        response = await driver.ask_controller(
            messages.list_reassignments_request(partitions, driver.broker_ms), ListPartitionReassignmentsResponse
        )
        found = messages.listed_reassignments(response)
        if isinstance(found, KafkaError):
            raise found
        return found

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
        response = await self._running(timeout_ms).ask_controller(
            acl_messages.create_acls_request(wanted), CreateAclsResponse
        )
        return checked(acl_messages.created_acls(response, wanted), raise_errors)

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
        response = await self._running(timeout_ms).ask_controller(
            acl_messages.describe_acls_request(acl_filter or AclBindingFilter()), DescribeAclsResponse
        )
        return acl_messages.described_acls(response)

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
        response = await self._running(timeout_ms).ask_controller(
            acl_messages.delete_acls_request(acl_filters), DeleteAclsResponse
        )
        return checked(acl_messages.deleted_acls(response), raise_errors)

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
        response = await self._running(timeout_ms).ask_controller(
            messages.eligible_leaders_request(_names("describe_eligible_leaders", topics)),
            DescribeTopicPartitionsResponse,
        )
        return messages.eligible_leaders(response)

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
        response = await driver.ask_controller(
            messages.elect_leaders_request(ElectionType(election_type), asked, driver.broker_ms), ElectLeadersResponse
        )
        found = messages.elected_leaders(response)
        if isinstance(found, KafkaError):
            raise found
        return _partition_results("elect the leader", found if asked is None else asked, found, raise_errors)

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


def _config_results(
    found: Mapping[ConfigResource, ConfigResult | KafkaError], raise_errors: bool
) -> list[ConfigResult]:
    return checked(results_of(found, ConfigResult), raise_errors)


def _partition_results(
    what: str, partitions: Iterable[TopicPartition], found: PartitionResults, raise_errors: bool
) -> PartitionResults:
    """A result for each of `partitions`, ascending."""
    return checked(
        {tp: found.get(tp) or PartitionResult(not_mentioned(f"{what} for {tp}")) for tp in sorted(partitions)},
        raise_errors,
    )
