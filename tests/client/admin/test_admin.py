"""The admin client against scripted brokers: which broker gets each request, retries, and the result of each item."""

import asyncio
from collections.abc import Callable

import pytest

from barnabas_client import Admin, ConfigResource, KafkaError, NewTopic, OffsetSpec, TopicPartition
from barnabas_client.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaTimeoutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedAssignment,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
    Member,
)
from barnabas_protocol.messages.create_topics import CreateTopicsRequest
from barnabas_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas_protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.list_offsets import (
    ListOffsetsRequest,
)
from barnabas_protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.world.answers import Action, Answer, drop, held, lose, refused
from tests.world.broker import until
from tests.world.programs import Machine, Simulation, simulated

Pair = tuple[Machine, Machine]


def admin_of(broker: Machine, timeout_ms: int = 5_000) -> Admin:
    return Admin(bootstrap_servers=broker.address, request_timeout_ms=timeout_ms, retry_backoff_ms=1)


def described(code: ErrorCode, state: str = "Stable") -> Action:
    def action(request: Request) -> Answer:
        assert isinstance(request, DescribeGroupsRequest)
        return DescribeGroupsResponse(
            groups=[
                DescribedGroup(
                    error_code=code, group_id=name, group_state=state, protocol_type="", protocol_data="", members=[]
                )
                for name in request.groups
            ]
        )

    return action


def coordinated_by(broker: Machine) -> Action:
    def action(request: Request) -> Answer:
        assert isinstance(request, FindCoordinatorRequest)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port)
                for key in request.coordinator_keys
            ]
        )

    return action


def listing(*names: str) -> Action:
    groups = [ListedGroup(group_id=name, protocol_type="consumer", group_state="Stable") for name in names]
    return lambda request: ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)


def always(pair: Pair, key: ApiKey, make: Callable[[Machine], Action]) -> None:
    for broker in pair:
        broker.script.always(key, make(broker))


@simulated
async def test_a_moved_controller_is_found_again(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)

    brokers = [MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port) for each in (one, other)]
    controller = one.broker.services.cluster.image.controller_id
    before = MetadataResponse(brokers=brokers, controller_id=1 - controller, topics=[])

    def move(request: Request) -> Answer:
        for each in (one, other):
            each.script.always(ApiKey.METADATA, None)
        return refused(ErrorCode.NOT_CONTROLLER)(request)

    for each in (one, other):
        each.script.always(ApiKey.METADATA, lambda request: before)
    (other if controller == 0 else one).script.once(ApiKey.CREATE_TOPICS, move)
    async with admin_of(one) as admin:
        (result,) = await admin.create_topics([NewTopic("t", 1)])
    assert result.error is None
    assert [len(each.script.asked(CreateTopicsRequest)) for each in (one, other)] == [1, 1]


@simulated
async def test_a_request_that_may_have_been_carried_out_is_not_repeated(broker: Machine) -> None:
    broker.script.once(ApiKey.CREATE_TOPICS, lose)
    async with admin_of(broker) as admin:
        with pytest.raises(KafkaConnectionError):
            await admin.create_topics([NewTopic("t", 1)])
        assert len(broker.script.asked(CreateTopicsRequest)) == 1
        assert await admin.list_topics() == ["t"]


@simulated
async def test_results_have_the_order_of_the_topics(broker: Machine) -> None:
    def hashed(request: Request) -> Answer:
        assert isinstance(request, DeleteTopicsRequest)
        responses = [DeletableTopicResult(name=one.name, error_code=ErrorCode.NONE) for one in reversed(request.topics)]
        return DeleteTopicsResponse(responses=responses)

    broker.script.once(ApiKey.DELETE_TOPICS, hashed)
    async with admin_of(broker) as admin:
        assert [one.name for one in await admin.delete_topics(["b", "a", "c"])] == ["b", "a", "c"]


@simulated
async def test_a_cluster_without_a_controller_is_a_timeout(broker: Machine) -> None:
    here = MetadataResponseBroker(node_id=0, host=broker.host, port=broker.port)
    broker.script.always(ApiKey.METADATA, lambda request: MetadataResponse(brokers=[here], controller_id=-1, topics=[]))
    async with admin_of(broker) as admin:
        with pytest.raises(KafkaTimeoutError, match="the controller was not found"):
            await admin.create_topics([NewTopic("t", 1)], timeout_ms=30)


@simulated
async def test_every_error_is_in_its_result_or_a_note_of_the_first(broker: Machine) -> None:
    await broker.create("a")
    await broker.create("b")
    async with admin_of(broker) as admin:
        with pytest.raises(TopicAlreadyExistsError, match="'a'") as raised:
            await admin.create_topics([NewTopic(name) for name in "abc"])
        assert raised.value.__notes__ == [
            "and: create topic 'b': TOPIC_ALREADY_EXISTS, Topic 'b' already exists. "
            "To do: use it as it is, or delete it first"
        ]
        results = await admin.create_topics([NewTopic(name) for name in "cd"], raise_errors=False)
        assert [(one.name, one.error and one.error.code) for one in results] == [
            ("c", ErrorCode.TOPIC_ALREADY_EXISTS),
            ("d", None),
        ]
        found = await admin.describe_topics(["a", "x"], raise_errors=False)
        assert [(topic.name, topic.error) for topic in found] == [
            ("a", ErrorCode.NONE),
            ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]


@simulated
async def test_each_coordinator_is_asked_about_its_groups(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)

    def find(request: Request) -> Answer:
        assert isinstance(request, FindCoordinatorRequest)
        return coordinated_by(other if request.coordinator_keys == ["far"] else one)(request)

    always((one, other), ApiKey.FIND_COORDINATOR, lambda broker: find)
    always((one, other), ApiKey.DESCRIBE_GROUPS, lambda broker: described(ErrorCode.NONE))
    async with admin_of(one) as admin:
        groups = await admin.describe_consumer_groups(["near", "far"])
    assert [(group.group_id, group.coordinator and group.coordinator.node_id) for group in groups] == [
        ("near", 0),
        ("far", 1),
    ]
    assert [request.groups for request in one.script.asked(DescribeGroupsRequest)] == [["near"]]
    assert [request.groups for request in other.script.asked(DescribeGroupsRequest)] == [["far"]]


@simulated
async def test_a_coordinator_that_moved_or_loads_is_asked_again(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    one.script.once(ApiKey.FIND_COORDINATOR, coordinated_by(one), refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    other.script.once(ApiKey.FIND_COORDINATOR, coordinated_by(one), refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    always((one, other), ApiKey.FIND_COORDINATOR, lambda broker: coordinated_by(other))
    one.script.always(ApiKey.DESCRIBE_GROUPS, refused(ErrorCode.NOT_COORDINATOR))
    other.script.once(ApiKey.DESCRIBE_GROUPS, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), drop)
    other.script.always(ApiKey.DESCRIBE_GROUPS, described(ErrorCode.NONE))
    async with admin_of(one) as admin:
        (group,) = await admin.describe_consumer_groups(["g"])
    assert (group.error, group.state) == (None, "Stable")
    assert len(other.script.asked(DescribeGroupsRequest)) == 3


@simulated
async def test_a_group_that_stays_unavailable_times_out_and_the_others_get_results(broker: Machine) -> None:
    def action(request: Request) -> Answer:
        assert isinstance(request, DeleteGroupsRequest)
        codes = {"loading": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "busy": ErrorCode.NON_EMPTY_GROUP}
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=name, error_code=codes.get(name, ErrorCode.NONE))
                for name in request.groups_names
            ]
        )

    broker.script.always(ApiKey.DELETE_GROUPS, action)
    async with admin_of(broker) as admin:
        results = await admin.delete_consumer_groups(["loading", "fine", "busy"], 5_000, raise_errors=False)
    errors = {one.group_id: one.error for one in results}
    assert list(errors) == ["loading", "fine", "busy"]
    assert isinstance(errors["loading"], KafkaTimeoutError)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in str(errors["loading"])
    assert errors["fine"] is None
    assert str(errors["busy"]) == "delete group 'busy': NON_EMPTY_GROUP. To do: stop its members first"


@pytest.mark.parametrize("newest", [5, 6])
@simulated
async def test_a_group_that_does_not_exist_is_an_error_in_every_version(broker: Machine, newest: int) -> None:
    code = ErrorCode.GROUP_ID_NOT_FOUND if newest == 6 else ErrorCode.NONE
    broker.limit(ApiKey.DESCRIBE_GROUPS, newest)
    broker.script.always(ApiKey.DESCRIBE_GROUPS, described(code, "Dead"))
    async with admin_of(broker) as admin:
        (group,) = await admin.describe_consumer_groups(["g"], raise_errors=False)
        assert group.error is not None
        assert group.error.code == ErrorCode.GROUP_ID_NOT_FOUND
        with pytest.raises(KafkaError, match="check its name"):
            await admin.describe_consumer_groups(["g"])


def not_classic(request: Request) -> Answer:
    group = DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message="Group g is not a classic group.",
        group_id="g",
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )
    return DescribeGroupsResponse(groups=[group])


@simulated
async def test_a_group_of_the_consumer_protocol_is_described(broker: Machine) -> None:
    def assignment(*partitions: int) -> DescribedAssignment:
        topic = DescribedTopicPartitions(topic_id=b"t" * 16, topic_name="t", partitions=list(partitions))
        return DescribedAssignment(topic_partitions=[topic])

    def newer(request: Request) -> Answer:
        assert isinstance(request, ConsumerGroupDescribeRequest)
        assert request.group_ids == ["g"]
        member = Member(
            member_id="m",
            instance_id="i",
            member_epoch=2,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["t"],
            assignment=assignment(1, 0),
            target_assignment=assignment(0, 2),
        )
        group = DescribedConsumerGroup(
            error_code=ErrorCode.NONE,
            group_id="g",
            group_state="Reconciling",
            group_epoch=4,
            assignment_epoch=3,
            assignor_name="uniform",
            members=[member],
        )
        return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[group])

    broker.script.always(ApiKey.DESCRIBE_GROUPS, not_classic)
    broker.script.always(ApiKey.CONSUMER_GROUP_DESCRIBE, newer)
    async with admin_of(broker) as admin:
        (group,) = await admin.describe_consumer_groups(["g"])
    assert (group.state, group.protocol, group.epoch, group.assignment_epoch) == ("Reconciling", "uniform", 4, 3)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.epoch, member.topics) == ("m", "i", 2, ("t",))
    zero, one, two = (TopicPartition("t", number) for number in range(3))
    assert (member.partitions, member.target) == ((zero, one), (zero, two))
    assert (member.to_revoke, member.to_get) == ((one,), (two,))


@simulated
async def test_a_broker_that_cannot_describe_groups_of_the_consumer_protocol(broker: Machine) -> None:
    broker.limit(ApiKey.CONSUMER_GROUP_DESCRIBE, -1)
    broker.script.always(ApiKey.DESCRIBE_GROUPS, not_classic)
    async with admin_of(broker) as admin:
        with pytest.raises(UnsupportedVersionError, match="KIP-848"):
            await admin.describe_consumer_groups(["g"])


@simulated
async def test_every_broker_lists_its_groups(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    one.script.always(ApiKey.LIST_GROUPS, listing("b", "c"))
    other.script.always(ApiKey.LIST_GROUPS, listing("a"))
    async with admin_of(one) as admin:
        assert [group.group_id for group in await admin.list_consumer_groups()] == ["a", "b", "c"]
        other.script.always(ApiKey.LIST_GROUPS, refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        found = await admin.list_consumer_groups(["Stable"], ["classic"], raise_errors=False)
        assert [group.group_id for group in found] == ["b", "c"]
        assert [error.code for error in found.errors] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
        with pytest.raises(KafkaError, match="list the groups of broker 1"):
            await admin.list_consumer_groups()
    request = one.script.asked(ListGroupsRequest)[1]
    assert (request.states_filter, request.types_filter) == (["Stable"], ["classic"])


@simulated
async def test_a_group_without_offsets_has_none(broker: Machine) -> None:
    tp = TopicPartition("t", 0)
    async with admin_of(broker) as admin:
        assert await admin.list_consumer_group_offsets("g") == {}
        (offset,) = (await admin.list_consumer_group_offsets("g", [tp])).values()
        assert offset.offset is None


@simulated
async def test_offsets_are_listed_by_the_old_and_the_new_leader(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    await one.create("t", 2, [0, 1], [0, 1])
    await one.write("t", [b"x"] * 3, 0)
    await one.write("t", [b"x"] * 5, 1)
    first, second, absent, nowhere = (
        TopicPartition("t", 0),
        TopicPartition("t", 1),
        TopicPartition("t", 2),
        TopicPartition("u", 0),
    )

    go = asyncio.Event()
    one.script.once(ApiKey.LIST_OFFSETS, held(go))
    async with admin_of(one) as admin:
        wanted = dict.fromkeys([first, second, absent, nowhere], OffsetSpec.LATEST)
        listing = asyncio.create_task(admin.list_offsets(wanted, raise_errors=False))
        await until(lambda: bool(one.script.asked(ListOffsetsRequest)))
        await simulation.lead("t", 1, 1)
        go.set()
        found = await listing
        with pytest.raises(UnknownTopicOrPartitionError, match="list offsets of u-0"):
            await admin.list_offsets({nowhere: OffsetSpec.EARLIEST})
    assert (found[first].offset, found[second].offset) == (3, 5)
    assert isinstance(found[absent].error, UnknownTopicOrPartitionError)
    assert isinstance(found[nowhere].error, UnknownTopicOrPartitionError)
    (asked,) = other.script.asked(ListOffsetsRequest)
    assert [one.partition_index for topic in asked.topics for one in topic.partitions] == [1]


@simulated
async def test_an_old_broker_is_not_asked_for_the_newest_timestamp(broker: Machine) -> None:
    await broker.create("t")
    broker.limit(ApiKey.LIST_OFFSETS, 6)
    async with admin_of(broker) as admin:
        with pytest.raises(UnsupportedVersionError, match="newest timestamp"):
            await admin.list_offsets({TopicPartition("t", 0): OffsetSpec.MAX_TIMESTAMP})
    assert not broker.script.asked(ListOffsetsRequest)


@simulated
async def test_a_broker_is_asked_for_its_own_configuration(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)

    def action(request: Request) -> Answer:
        assert isinstance(request, DescribeConfigsRequest)
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    error_code=ErrorCode.NONE,
                    error_message=None,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[],
                )
                for resource in request.resources
            ]
        )

    always((one, other), ApiKey.DESCRIBE_CONFIGS, lambda broker: action)
    resources = [ConfigResource.broker(1), ConfigResource.topic("t"), ConfigResource.broker(None)]
    async with admin_of(one) as admin:
        results = await admin.describe_configs(resources)
    assert [result.resource for result in results] == resources
    asked = [
        [[each.resource_name for each in request.resources] for request in broker.script.asked(DescribeConfigsRequest)]
        for broker in (one, other)
    ]
    assert ["1"] in asked[1], "the others may go to either"
    assert sorted(asked[0] + asked[1]) == [["1"], ["t", ""]]


@simulated
async def test_invalid_arguments_are_refused_at_once(broker: Machine) -> None:
    admin = admin_of(broker)
    with pytest.raises(IllegalStateError, match="not started"):
        await admin.list_topics()
    async with admin:
        with pytest.raises(ValueError, match="at least 1"):
            await admin.create_topics([], timeout_ms=0)
        with pytest.raises(IllegalStateError, match="started already"):
            await admin.start()
    await admin.close()
    with pytest.raises(IllegalStateError, match="stopped"):
        await admin.list_topics()
    with pytest.raises(KafkaConnectionError):
        await Admin(bootstrap_servers="127.0.0.1:1").start()
