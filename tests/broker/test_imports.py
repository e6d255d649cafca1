"""A broker begins with what it needs: the rest is imported when it is asked for, and what only tests need never."""

import asyncio
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records.builder import build_batch
from tests.wire import PATIENCE, Wire

#: The command, which tells at its end what it has imported.
PROGRAM = "import sys; from barnabas_broker.__main__ import main\ntry: main()\nfinally: print(*sys.modules)"
#: Who stores records needs none of these: group members, other brokers, HTTP, a terminal.
FOR_OTHERS = {
    "aetcd",
    "aiohttp",
    "grpc",
    "rich",
    "barnabas_broker.cluster.etcd",
    "barnabas_broker.cluster.kv",
    "barnabas_broker.cluster.member",
    "barnabas_broker.handlers.configs",
    "barnabas_broker.handlers.fetch",
    "barnabas_broker.http.endpoint",
    "barnabas_broker.replication.fetcher",
    "barnabas_broker.replication.isr",
    "barnabas_broker.supervisor",
    "barnabas_broker.testing",
}
FOR_GROUP_MEMBERS = {"barnabas_broker.handlers.groups"}


async def imported(folder: Path) -> set[str]:
    """What a broker has imported when it has stored a record."""
    flags = ("--host", "127.0.0.1", "--port", "0", "--data-dir", str(folder), "--set", "offsets.topic.num.partitions=1")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PROGRAM, *flags), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            port = int((await process.stdout.readline()).rpartition(b":")[2])
        async with await Wire.connect(port) as wire:
            assert (await wire.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)).api_keys
            asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
            assert not (await wire.ask(asked, 4, MetadataResponse)).topics[0].error_code
            batch = build_batch([(None, b"value", (), 0)])
            data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
            request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data])
            stored = await wire.ask(request, 7, ProduceResponse)
            assert not stored.responses[0].partition_responses[0].error_code
        process.terminate()
        async with asyncio.timeout(PATIENCE):
            told, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return set(told.decode().splitlines()[-1].split())


async def test_the_first_record_needs_none_of_the_rest(tmp_path: Path) -> None:
    loaded = await imported(tmp_path)
    assert "barnabas_broker.handlers.produce" in loaded
    assert not loaded & (FOR_OTHERS | FOR_GROUP_MEMBERS)


@pytest.mark.parametrize("name", sorted(FOR_OTHERS | FOR_GROUP_MEMBERS))
def test_what_is_not_imported_is_there(name: str) -> None:
    assert find_spec(name) is not None
