"""Every module of `messages` declares one API of Kafka's; a mistake in one of them stops the import and is named."""

import re
from types import ModuleType
from typing import Any

import pytest

from barnabas_protocol.apis import APIS, MODULES, RegistryError, register
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.sync_group import SyncGroupResponse
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Api, Request, Response
from tests.lots import in_lots
from tests.protocol.reference import EXACT, load, snake

#: The APIs of Kafka 4.4.0 that are not declared, by reason.
NOT_DECLARED = {
    "between brokers and controllers only, or of Kafka before 4.0": """
        LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown Vote BeginQuorumEpoch EndQuorumEpoch
        AlterPartition FetchSnapshot BrokerRegistration BrokerHeartbeat UnregisterBroker AllocateProducerIds
        ControllerRegistration AssignReplicasToDirs AddRaftVoter RemoveRaftVoter UpdateRaftVoter
        UnregisterController""",
    "Kafka Streams groups (KIP-1071)": """
        StreamsGroupHeartbeat StreamsGroupDescribe StreamsGroupTopologyDescriptionUpdate""",
    "delegation tokens (KIP-48)": """
        CreateDelegationToken RenewDelegationToken ExpireDelegationToken DescribeDelegationToken""",
}


def test_the_keys_are_kafkas() -> None:
    kafkas = {snake(name).upper(): api["key"] for name, api in load(EXACT)["messages"].items()}
    assert {key.name: key.value for key in ApiKey} == kafkas
    assert {key.title for key in ApiKey} == set(load(EXACT)["messages"])


def test_apis_that_are_not_declared() -> None:
    listed = [name for names in NOT_DECLARED.values() for name in names.split()]
    assert sorted(listed) == sorted(key.title for key in ApiKey if key not in APIS)
    with pytest.raises(KeyError, match="STREAMS_GROUP_HEARTBEAT"):
        api(ApiKey.STREAMS_GROUP_HEARTBEAT)


@in_lots("key", APIS)
def test_both_messages_belong_together(key: ApiKey) -> None:
    found = api(key)
    assert issubclass(found.request, Request)
    assert issubclass(found.response, Response)
    assert found.request.API_KEY == found.response.API_KEY == key
    assert found.versions == found.request.VERSIONS == found.response.VERSIONS
    assert found.request.FLEXIBLE == found.response.FLEXIBLE


@in_lots("module", MODULES)
def test_the_heading_of_a_module_matches_its_declaration(module: ModuleType) -> None:
    declared: Api = module.API
    key, versions, flexible = ApiKey(declared.request.API_KEY), declared.versions, declared.request.FLEXIBLE
    word = "version" if versions.low == versions.high else "versions"
    first = "never flexible" if flexible.high < flexible.low else f"flexible from {flexible.low}"
    assert module.__doc__ is not None
    assert module.__doc__.startswith(f"{key.title} (key {key}), {word} {versions}, {first}")
    assert module.__name__ == f"barnabas_protocol.messages.{key.name.lower()}"


def _module(declared: Any) -> ModuleType:
    module = ModuleType("a_module")
    vars(module)["API"] = declared
    return module


class _Unknown(Request, api_key=4711, versions="0"):
    pass


class _UnknownResponse(Response, api_key=4711, versions="0"):
    pass


class _Beat(Request, api_key=12, versions="0-4", flexible="4+"):
    pass


class _OlderResponse(Response, api_key=12, versions="0-3", flexible="4+"):
    pass


@pytest.mark.parametrize(
    ("declared", "why"),
    [
        pytest.param(None, "declares no API", id="none"),
        pytest.param(Api(HeartbeatRequest, SyncGroupResponse), "SyncGroupResponse differ in API_KEY", id="keys"),
        pytest.param(Api(HeartbeatRequest, _OlderResponse), "differ in VERSIONS", id="versions"),
        pytest.param(Api(_Unknown, _UnknownResponse), "no API with key 4711", id="unknown"),
        pytest.param(Api(_Beat, HeartbeatResponse), "key 12 is Heartbeat, not _Beat", id="name"),
    ],
)
def test_a_mistake_is_named(declared: Any, why: str) -> None:
    with pytest.raises(RegistryError, match=f"^a_module.*{re.escape(why)}"):
        register([_module(declared)])


def test_two_modules_cannot_declare_one_api() -> None:
    module = _module(Api(HeartbeatRequest, HeartbeatResponse))
    assert list(register([module])) == [ApiKey.HEARTBEAT]
    with pytest.raises(RegistryError, match="a_module: HEARTBEAT is declared in another module already"):
        register([module, module])
