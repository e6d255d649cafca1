"""Which APIs are served, by which handler."""

from barnabas_broker.coordinator.service import GroupCoordinator
from barnabas_broker.dispatch import Route
from barnabas_broker.handlers import (
    api_versions,
    configs,
    descriptions,
    fetch,
    groups,
    leaders,
    metadata,
    offsets,
    produce,
    producers,
    security,
    topics,
)
from barnabas_protocol.hot import encode_fetch_response
from barnabas_protocol.hot_commit import decode_offset_commit, encode_offset_commit
from barnabas_protocol.registry import ApiKey


def handlers() -> dict[ApiKey, Route]:
    """The table of handlers. Minimums are low on purpose: some clients look for them (see FACTS in each API's
    module)."""
    table = {
        ApiKey.PRODUCE: Route(produce.handle_produce, decode=produce.decode_produce),
        ApiKey.FETCH: Route(fetch.handle_fetch, versions="4-18", encode=encode_fetch_response),
        ApiKey.LIST_OFFSETS: Route(offsets.handle_list_offsets),
        ApiKey.METADATA: Route(metadata.handle_metadata, decode=metadata.decode_metadata),
        ApiKey.OFFSET_COMMIT: Route(
            groups.handler_for(GroupCoordinator.commit_offsets),
            decode=decode_offset_commit,
            encode=encode_offset_commit,
        ),
        ApiKey.OFFSET_FETCH: Route(groups.handler_for(GroupCoordinator.fetch_offsets)),
        ApiKey.FIND_COORDINATOR: Route(metadata.handle_find_coordinator),
        ApiKey.JOIN_GROUP: Route(groups.handler_for(GroupCoordinator.join)),
        ApiKey.HEARTBEAT: Route(groups.handler_for(GroupCoordinator.heartbeat)),
        ApiKey.LEAVE_GROUP: Route(groups.handler_for(GroupCoordinator.leave)),
        ApiKey.SYNC_GROUP: Route(groups.handler_for(GroupCoordinator.sync)),
        ApiKey.DESCRIBE_GROUPS: Route(groups.handler_for(GroupCoordinator.describe)),
        ApiKey.LIST_GROUPS: Route(groups.handler_for(GroupCoordinator.list_groups)),
        ApiKey.CREATE_TOPICS: Route(topics.handle_create_topics),
        ApiKey.DELETE_TOPICS: Route(topics.handle_delete_topics),
        ApiKey.DELETE_RECORDS: Route(offsets.handle_delete_records),
        ApiKey.INIT_PRODUCER_ID: Route(produce.handle_init_producer_id),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Route(offsets.handle_offset_for_leader_epoch),
        ApiKey.DESCRIBE_CONFIGS: Route(configs.handle_describe_configs),
        ApiKey.ALTER_CONFIGS: Route(configs.handle_alter_configs),
        ApiKey.CREATE_PARTITIONS: Route(topics.handle_create_partitions),
        ApiKey.DELETE_GROUPS: Route(groups.handler_for(GroupCoordinator.delete_groups)),
        ApiKey.ELECT_LEADERS: Route(leaders.handle_elect_leaders),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Route(leaders.handle_alter_partition_reassignments),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Route(leaders.handle_list_partition_reassignments),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Route(configs.handle_incremental_alter_configs),
        ApiKey.OFFSET_DELETE: Route(groups.handler_for(GroupCoordinator.delete_offsets)),
        ApiKey.DESCRIBE_CLUSTER: Route(metadata.handle_describe_cluster),
        ApiKey.DESCRIBE_LOG_DIRS: Route(descriptions.handle_describe_log_dirs),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Route(descriptions.handle_describe_topic_partitions),
    }
    table |= {
        ApiKey.SASL_HANDSHAKE: Route(security.handle_sasl_handshake),
        ApiKey.SASL_AUTHENTICATE: Route(security.handle_sasl_authenticate),
        ApiKey.DESCRIBE_ACLS: Route(security.handle_describe_acls),
        ApiKey.CREATE_ACLS: Route(security.handle_create_acls),
        ApiKey.DELETE_ACLS: Route(security.handle_delete_acls),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Route(descriptions.handle_alter_replica_log_dirs),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Route(security.handle_describe_client_quotas),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Route(security.handle_describe_user_scram_credentials),
        ApiKey.DESCRIBE_PRODUCERS: Route(producers.handle_describe_producers),
        ApiKey.DESCRIBE_TRANSACTIONS: Route(producers.handle_describe_transactions),
        ApiKey.LIST_TRANSACTIONS: Route(producers.handle_list_transactions),
        ApiKey.LIST_CONFIG_RESOURCES: Route(configs.handle_list_config_resources),
    }
    table[ApiKey.API_VERSIONS] = Route(api_versions.handler_for(table))
    return table
