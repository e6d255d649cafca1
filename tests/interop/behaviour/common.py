"""Common steps of scenarios, and short functions that build them."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.language import Ask, Batch, Hear, Server, Step, Subscription, ask

#: The longest timeout of any scenario in ms.
LONG: Final = 60_000
#: Kafka's topic keys that Barnabas does not support.
NO_EFFECT: Final = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.decompressed.message.bytes",
    "preallocate",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "segment.jitter.ms",
)
#: A setting under which no scenario sets users, quotas or configurations of groups. Some do under "plain", and
#: scenarios share the broker of their setting.
UNTOUCHED: Final[Server] = "strict"
#: Subscriptions of members, first and later. Kafka decodes them; a group with other bytes hangs there.
WANTED: Final = Subscription(("wanted",))
CHANGED: Final = Subscription(("changed",))


def when(condition: bool, **content: Any) -> dict[str, Any]:
    """Return fields that only some versions have."""
    return content if condition else {}


def make_topic(name: str = "$topic", partitions: int = 1, *, save: str = "topic_id", **configs: str) -> list[Step]:
    """Create a topic and wait until the broker has opened the logs of all its partitions. Its id is saved as `save`.

    Metadata alone does not say so: Apache Kafka's controller knows the leaders before the broker has made the logs, one
    after the other. ListOffsets fails for each partition whose log is not open yet.
    """
    config = [{"name": key.replace("__", "."), "value": value} for key, value in configs.items()]
    new = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": config}
    usable: dict[str, Any] = {f"topics.0.partitions.{n}.error_code": 0 for n in range(partitions)}
    ends = {"name": name, "partitions": [{"partition_index": n, "timestamp": -1} for n in range(partitions)]}
    return [
        ask(ApiKey.CREATE_TOPICS, 7, topics=[new], quiet=True),
        ask(
            ApiKey.METADATA,
            12,
            topics=[{"name": name}],
            allow_auto_topic_creation=False,
            until={"topics.0.error_code": 0, "topics.0.partitions.length": partitions, **usable},
            save={save: "topics.0.topic_id"},
            quiet=True,
        ),
        ask(
            ApiKey.LIST_OFFSETS,
            6,
            replica_id=-1,
            topics=[ends],
            until={"topics.0.partitions.length": partitions, **usable},
            quiet=True,
        ),
    ]


def produce(
    *values: str | tuple[str, str | None], topic: str = "$topic", partition: int = 0, quiet: bool = True, **batch: Any
) -> Ask:
    """Produce of one partition, with an acknowledgement."""
    records = Batch(tuple(values) or ("v",), **batch)
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return ask(ApiKey.PRODUCE, 9, acks=-1, timeout_ms=30_000, topic_data=data, quiet=quiet)


def join(
    member: str = "",
    *,
    on: str = "a",
    version: int = 3,
    group: str = "$group",
    instance: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    metadata: Any = WANTED,
    session: int = LONG,
    rebalance: int = LONG,
    kind: str = "consumer",
    **options: Any,
) -> Ask:
    """JoinGroup; version 3 is the last in which a member without an id joins with one request."""
    content: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": session,
        "rebalance_timeout_ms": rebalance,
        "member_id": member,
        "protocol_type": kind,
        "protocols": [{"name": name, "metadata": metadata} for name in protocols],
    }
    if instance is not None:
        content["group_instance_id"] = instance
        version = max(version, 5)
    options.setdefault("save", {f"{on}_id": "member_id"} if not options.get("later") else {})
    return ask(ApiKey.JOIN_GROUP, version, on=on, **options, **content)


def hear_join(on: str = "a", **options: Any) -> Hear:
    """The deferred response of a JoinGroup; the member's id is saved as `<connection>_id`."""
    return Hear(on, {f"{on}_id": "member_id"}, **options)


def sync(
    member: str,
    generation: int = 1,
    *,
    on: str = "a",
    version: int = 3,
    group: str = "$group",
    instance: str | None = None,
    shares: dict[str, Any] | None = None,
    **options: Any,
) -> Ask:
    """SyncGroup, with the leader's assignments (`shares`) by member id."""
    content: dict[str, Any] = {} if instance is None else {"group_instance_id": instance}
    return ask(
        ApiKey.SYNC_GROUP,
        version,
        on=on,
        group_id=group,
        generation_id=generation,
        member_id=member,
        assignments=[{"member_id": who, "assignment": what} for who, what in (shares or {}).items()],
        **options,
        **content,
    )


def heartbeat(
    member: str,
    generation: int = 1,
    *,
    on: str = "a",
    version: int = 3,
    group: str = "$group",
    instance: str | None = None,
    **options: Any,
) -> Ask:
    """Heartbeat."""
    content: dict[str, Any] = {} if instance is None else {"group_instance_id": instance}
    return ask(
        ApiKey.HEARTBEAT,
        version,
        on=on,
        group_id=group,
        generation_id=generation,
        member_id=member,
        **options,
        **content,
    )


def leave(
    *members: tuple[str, str | None], on: str = "a", version: int = 3, group: str = "$group", **options: Any
) -> Ask:
    """LeaveGroup of members (member id, instance id)."""
    who = [{"member_id": member, "group_instance_id": instance} for member, instance in members]
    return ask(ApiKey.LEAVE_GROUP, version, on=on, group_id=group, members=who, **options)


def commit(
    member: str = "",
    generation: int = -1,
    *,
    offset: int = 5,
    topic: str = "$topic",
    partition: int = 0,
    metadata: str | None = "why",
    on: str = "a",
    version: int = 7,
    group: str = "$group",
    instance: str | None = None,
    **options: Any,
) -> Ask:
    """OffsetCommit of one partition."""
    content: dict[str, Any] = {} if instance is None else {"group_instance_id": instance}
    part = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    return ask(
        ApiKey.OFFSET_COMMIT,
        version,
        on=on,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[{"name": topic, "partitions": [part]}],
        **options,
        **content,
    )


def describe(group: str = "$group", *, on: str = "z", version: int = 5, **options: Any) -> Ask:
    """DescribeGroups of one group, over a connection of its own."""
    return ask(ApiKey.DESCRIBE_GROUPS, version, on=on, groups=[group], **options)


def until_state(state: str, group: str = "$group") -> Ask:
    """Wait for a state of a group."""
    return describe(group, until={"groups.0.group_state": state}, quiet=True)


def alone(*, on: str = "a", session: int = LONG, rebalance: int = LONG, **options: Any) -> list[Step]:
    """A group of one dynamic member, stable in generation 1."""
    return [
        join(on=on, session=session, rebalance=rebalance, quiet=True, **options),
        sync(f"${on}_id", 1, on=on, shares={f"${on}_id": b"share"}, quiet=True),
    ]


def pair(*, session: int = LONG, rebalance: int = LONG, protocols: tuple[str, ...] = ("range",)) -> list[Step]:
    """A group of two dynamic members on connections a (which leads) and b, joined in generation 2, not synced."""
    options: dict[str, Any] = {"session": session, "rebalance": rebalance, "protocols": protocols}
    return [
        *alone(**options),
        join(on="b", later=True, **options),
        until_state("PreparingRebalance"),
        join("$a_id", later=True, **options),
        hear_join("a", quiet=True),
        hear_join("b", quiet=True),
    ]


def settled(generation: int = 2) -> list[Step]:
    """SyncGroups that make a `pair` stable."""
    return [
        sync("$a_id", generation, shares={"$a_id": b"share a", "$b_id": b"share b"}, quiet=True),
        sync("$b_id", generation, on="b", quiet=True),
    ]


def fetch(offset: int = 0, *, version: int = 12, topic: str = "$topic", partition: int = 0, **options: Any) -> Ask:
    """Fetch of one partition, without a session and without waiting; from version 13 by `$topic_id`."""
    names = ("current_leader_epoch", "last_fetched_epoch", "log_start_offset")
    one: dict[str, Any] = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
    one |= {name: options.pop(name) for name in names if name in options}
    one["partition_max_bytes"] = options.pop("partition_max_bytes", 1_000_000)
    where = {"topic": topic} if version < 13 else {"topic_id": options.pop("topic_id", "$topic_id")}
    content: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000_000, **options}
    return ask(ApiKey.FETCH, version, topics=[{**where, "partitions": [one]}], **content)


def clock(ms: int) -> list[Step]:
    """Wait at least `ms` milliseconds of the broker's clock: a member of another group expires."""
    return [join(on="clock", group="$group-clock", session=ms, quiet=True), until_state("Empty", "$group-clock")]


def init_transactions(version: int = 4, transactional_id: str = "$group", **content: Any) -> list[Step]:
    """A producer of a transactional id; its producer id and epoch are saved as `pid` and `epoch`.

    The coordinators of the group and of the transactional id "$group" are ready, too.
    """
    return [
        *(
            ask(
                ApiKey.FIND_COORDINATOR,
                4,
                key_type=kind,
                coordinator_keys=["$group"],
                until={"coordinators.0.error_code": 0},
                quiet=True,
            )
            for kind in (0, 1)
        ),
        ask(
            ApiKey.INIT_PRODUCER_ID,
            version,
            **{
                "transactional_id": transactional_id,
                "transaction_timeout_ms": 60_000,
                **when(version >= 3, producer_id=-1, producer_epoch=-1),
                **content,
            },
            save={"pid": "producer_id", "epoch": "producer_epoch"},
            until={"error_code": 0},
            quiet=True,
        ),
    ]


def add_group(version: int = 3, *, group: str = "$group", until: bool = True, **options: Any) -> Ask:
    """AddOffsetsToTxn; by default repeated until it succeeds, and not compared."""
    content = {"transactional_id": "$group", "producer_id": "$pid", "producer_epoch": "$epoch", "group_id": group}
    if until:
        options = {"until": {"error_code": 0}, "quiet": True, **options}
    return ask(ApiKey.ADD_OFFSETS_TO_TXN, version, **{**content, **options})


def end_transaction(committed: bool, version: int = 3, *, quiet: bool = True, **options: Any) -> Ask:
    """EndTxn of the producer of `init_transactions`."""
    content = {"transactional_id": "$group", "producer_id": "$pid", "producer_epoch": "$epoch", "committed": committed}
    return ask(ApiKey.END_TXN, version, quiet=quiet, **{**content, **options})
