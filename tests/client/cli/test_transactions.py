"""`barnabas transactions`, and what other commands say about transactions."""

import json
import re
import uuid
from pathlib import Path

import pytest

from barnabas_client import Admin, Consumer, KafkaError, Producer, TopicPartition
from barnabas_client.errors import ErrorCode, ProducerFencedError
from tests.client.cli.conftest import Cli

T0 = TopicPartition("t", 0)


@pytest.fixture
def name() -> str:
    """A transactional id: the brokers outlive a test, and with them what they know of an id."""
    return f"x-{uuid.uuid4().hex}"


@pytest.fixture
async def open_transaction(cli: Cli, numbers: None, name: str) -> None:
    """A transaction is open in the first partition of "t", from offset 5 on."""
    sender = Producer(bootstrap_servers=cli.address, transactional_id=name)
    await sender.start()
    await sender.begin_transaction()
    await sender.send_and_wait("t", b"open", partition=0)
    await sender._sender.close()  # as if it had died
    await sender._disconnect()
    sender._life.state = type(sender._life.state).STOPPED


@pytest.mark.usefixtures("open_transaction")
async def test_a_transaction_is_listed_described_and_aborted(cli: Cli, name: str) -> None:
    ongoing = ("transactions", "list", "--state", "ongoing", "--json", "--pattern", f"{name}.*")
    (one,) = (await cli(*ongoing)).json
    assert one["transactional_id"] == name and one["state"] == "Ongoing"
    printed = await cli("transactions", "list")
    assert printed.lines[0].split() == ["TRANSACTIONAL-ID", "COORDINATOR", "PRODUCER-ID", "STATE"]
    (one,) = (await cli("transactions", "describe", name, "--json")).json
    assert one["partitions"] == [{"topic": "t", "partition": 0}] and one["timeout_ms"] == 60_000
    assert one["open_for_ms"] >= 0
    assert "t:0" in (await cli("transactions", "describe", name)).lines[1]

    printed = await cli("transactions", "abort", name)
    assert printed.out == f"{name}: would be fenced: producer and transaction\n"
    assert printed.err == "Nothing was changed. Add --execute to abort.\n"
    assert (await cli(*ongoing)).json
    printed = await cli("transactions", "abort", name, "--execute")
    assert printed.out == f"{name}: fenced: producer and transaction\n"
    assert not (await cli(*ongoing)).json
    printed = await cli("consume", "t", "-p", "0", "--from-beginning", "-e", "--isolation-level", "read_committed")
    assert printed.lines == ["0", "1", "2", "3", "4"]


@pytest.mark.usefixtures("open_transaction")
async def test_a_group_that_waits_for_a_transaction(cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await cli("groups", "reset-offsets", "g", "--to-offset", "5", "-t", "t:0", "--execute")
    printed = await cli("groups", "describe", "g")
    assert "t-0: read_committed consumers wait at offset 5 for an open transaction of producer id " in printed.err
    assert re.search(rf"\({name}\), open for [0-9.]+ m?s; 1 record behind it", printed.err)
    (group,) = (await cli("groups", "describe", "g", "--json")).json
    (wait,) = group["waits_for_transactions"]
    assert (wait["last_stable_offset"], wait["records"], wait["transactional_id"]) == (5, 1, name)
    assert wait["open_for_ms"] >= 0
    printed = await cli("groups", "watch", "g", "--max", "1")
    assert "t-0: read_committed consumers wait at offset 5 for an open transaction" in printed.out
    view = json.loads((await cli("groups", "watch", "g", "--max", "1", "--json")).out)
    assert [one["transactional_id"] for one in view["waits_for_transactions"]] == [name]
    monkeypatch.setattr("barnabas_explain.waits._LONG_MS", 3_600_000)
    assert "wait at offset 5" not in (await cli("groups", "explain", "g", "--since", "1h")).out, "it may be at work"
    monkeypatch.setattr("barnabas_explain.waits._LONG_MS", -1)
    monkeypatch.setattr("barnabas_explain.waits._IDLE_MS", -1)
    explained = (await cli("groups", "explain", "g", "--since", "1h")).out
    assert "t-0: read_committed consumers wait at offset 5 for an open transaction of producer id " in explained
    assert "If it is gone, start it again" in explained
    await cli("groups", "reset-offsets", "other", "--to-offset", "2", "-t", "t:0", "--execute")
    printed = await cli("groups", "watch", "g", "other", "--max", "1")
    assert "g, t-0: read_committed consumers wait at offset 5 for an open transaction" in printed.out
    views = json.loads((await cli("groups", "watch", "g", "other", "--max", "1", "--json")).out)
    waits = {
        one["group"]: [each["last_stable_offset"] for each in one["waits_for_transactions"]] for one in views["groups"]
    }
    assert waits == {"g": [5], "other": []}


@pytest.mark.usefixtures("open_transaction")
async def test_a_transaction_that_its_coordinator_knows_does_not_hang(cli: Cli) -> None:
    printed = await cli("transactions", "find-hanging", "--max-transaction-timeout", "0ms")
    assert printed.out == "" and printed.err.startswith("no transaction hangs in ")


@pytest.mark.usefixtures("open_transaction")
async def test_an_abort_marker_for_one_partition(cli: Cli) -> None:
    printed = await cli("transactions", "abort", "-t", "t:0", "--start-offset", "3", status=1)
    assert "t-0 has no transaction that starts at offset 3: open ones start at 5" in printed.err
    await cli("transactions", "abort", "-t", "t:0", "--start-offset", "5")
    await cli("transactions", "abort", "-t", "t:0", "--start-offset", "5", "--execute")
    printed = await cli("transactions", "abort", "-t", "t:0", "--start-offset", "5", status=1)
    assert "it has no open transaction" in printed.err


async def test_what_is_wrong(cli: Cli) -> None:
    printed = await cli("transactions", "describe", "nope", status=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in printed.err
    for wrong in ((), ("x", "-t", "t:0"), ("-t", "t:0"), ("-t", "t"), ("--start-offset", "-1")):
        await cli("transactions", "abort", *wrong, status=2)


async def test_all_lines_are_one_transaction(cli: Cli, tmp_path: Path, numbers: None) -> None:

    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    await cli("produce", "t", str(lines), "-p", "1", "--transactional-id", "cli")
    printed = await cli("consume", "t", "-p", "1", "--from-beginning", "-e", "--read-committed")
    assert printed.lines == ["5", "6", "7", "a", "b"]


async def test_admin_fences_a_producer(cli: Cli, numbers: None, name: str) -> None:
    async with Producer(bootstrap_servers=cli.address, transactional_id=name) as sender:
        async with sender.transaction():
            await sender.send("t", b"yes", partition=0)
        async with Admin(bootstrap_servers=cli.address) as admin:
            (fenced,) = await admin.fence_producers([name])
            assert fenced.producer_epoch > 0
            (known,) = await admin.describe_transactions([name])
            assert (known.producer_id, known.producer_epoch) == (fenced.producer_id, fenced.producer_epoch)
            known_there = (await admin.describe_producers([T0]))[T0].producers
            (producer,) = [one for one in known_there if one.producer_id == fenced.producer_id]
            assert producer.transaction_start_offset is None
            with pytest.raises(KafkaError) as raised:
                await admin.describe_transactions(["nope"])
            assert raised.value.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        await sender.begin_transaction()
        await sender.send("t", b"no", partition=0)
        with pytest.raises(KafkaError):
            await sender.commit_transaction()
        with pytest.raises(ProducerFencedError):
            await sender.abort_transaction()


@pytest.mark.usefixtures("open_transaction")
@pytest.mark.parametrize("empty_servers", ["barnabas"], indirect=True)
async def test_aborted_transactions_are_explained(cli: Cli, name: str) -> None:
    group = f"g-{name}"
    await cli("groups", "reset-offsets", group, "--to-offset", "5", "-t", "t:0", "--execute")
    await cli("groups", "reset-offsets", f"other-{name}", "--to-offset", "2", "-t", "t:1", "--execute")
    await cli("transactions", "abort", name, "--execute")
    (one,) = (await cli("transactions", "explain", name, "--json")).json
    (event,) = one["data"]
    assert (event["type"], event["committed"], event["cause"]) == ("transaction_ended", False, "fenced")
    assert (event["transactional_id"], event["partitions"]) == (name, {"t": [0]})
    (line,) = (await cli("transactions", "explain", name, "--since", "1h")).lines
    assert re.search(
        rf"  Transaction {name} \(producer id \d+\) was aborted after \d[0-9.]* s, because a new producer of client "
        r"\S+ has taken over its transactional id: its records in t-0 do not count\.$",
        line,
    )
    assert (await cli("transactions", "explain", f"not-{name}")).err.startswith("No transaction was slow or aborted")
    assert line in (await cli("transactions", "explain")).lines
    # The group has the partition of the transaction, the other one does not.
    assert line in (await cli("groups", "explain", group)).lines
    (found,) = (await cli("groups", "explain", group, "--json", "--since", "1h")).json
    assert found == one
    assert not (await cli("groups", "explain", f"other-{name}", "--since", "1h")).lines


@pytest.mark.parametrize("empty_servers", [pytest.param("apache_kafka", marks=pytest.mark.kafka)], indirect=True)
async def test_apache_kafka_has_no_events_of_transactions(cli: Cli) -> None:
    printed = await cli("transactions", "explain", status=1)
    assert "have no topic __transaction_events" in printed.err


async def test_markers_at_the_end_of_transactions_are_no_records_to_read(cli: Cli, numbers: None) -> None:
    async with Consumer("t", bootstrap_servers=cli.address, group_id="all", enable_auto_commit=False) as consumer:
        end = {tp: offset + 1 for tp, offset in (await consumer.end_offsets(consumer.assignment())).items()}
        writer = Producer(bootstrap_servers=cli.address, transactional_id="marked")
        async with writer, writer.transaction():
            for tp in end:
                await writer.send(tp.topic, b"x", partition=tp.partition)
        await consumer.commit(end)
        marked = "markers at the end of transactions, which consumers do not get: no record waits there."
        healthy = await cli("groups", "doctor", "all")
        assert (healthy.out, marked in healthy.err) == ("Nothing is wrong with 1 group.\n", True)
        assert marked in (await cli("groups", "explain", "all")).err
        assert marked in (await cli("groups", "describe", "all")).err
        assert marked not in (await cli("groups", "describe", "all", "--members")).err
    assert (await cli("groups", "doctor", "all")).out == "Nothing is wrong with 1 group.\n"
    (earlier, *_) = end
    await cli("groups", "reset-offsets", "all", "-t", f"t:{earlier.partition}", "--to-offset", "1", "--execute")
    assert "all has no members" in (await cli("groups", "doctor", "all", status=1)).out
