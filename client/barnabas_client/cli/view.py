"""Formats coordinators and members of groups."""

from collections.abc import Iterable
from typing import Any

from barnabas_client.admin.types import GroupDescription, MemberDescription
from barnabas_client.structs import TopicPartition


def coordinator(group: GroupDescription) -> str:
    """Format the coordinator of a group as Kafka's tools do."""
    broker = group.coordinator
    return "-" if broker is None else f"{broker.host}:{broker.port}  ({broker.node_id})"


def coordinator_as_data(group: GroupDescription) -> dict[str, Any] | None:
    """Convert the coordinator of a group to JSON data."""
    broker = group.coordinator
    return None if broker is None else {"id": broker.node_id, "host": broker.host, "port": broker.port}


def _as_data(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]


def members_as_data(members: Iterable[MemberDescription]) -> list[dict[str, Any]]:
    """Convert members to JSON data."""
    return [
        {
            "consumer_id": member.member_id,
            "group_instance_id": member.instance_id,
            "host": member.host,
            "client_id": member.client_id,
            "topics": list(member.topics),
            "partitions": _as_data(member.partitions),
            "epoch": member.epoch,
            "target": None if member.target is None else _as_data(member.target),
        }
        for member in members
    ]
