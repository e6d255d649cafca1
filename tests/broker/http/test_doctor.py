"""What is wrong with groups: in the list, in a group and among the metrics."""

import re
from typing import Any

from barnabas_broker.broker import BrokerServer
from barnabas_broker.http.diagnoses import MOST_GROUPS, Diagnoses
from barnabas_broker.http.sampler import Sampler
from barnabas_client import Producer
from barnabas_explain.doctor import ODD, Diagnosis
from tests.broker.http.conftest import Http, StartBroker
from tests.broker.http.support import commit, make_topic, produce
from tests.browser.scenes import RawMember
from tests.wire import Wire


async def findings(broker: BrokerServer, http: Http, group: str) -> list[dict[str, Any]]:
    """The findings about a group after the broker has examined all."""
    await Sampler(broker.view).sample()
    (row,) = [each for each in (await http.get("/groups")).json["groups"] if each["group"] == group]
    assert (await http.get(f"/groups/{group}")).json["findings"] == row["findings"]
    found: list[dict[str, Any]] = row["findings"]
    return found


async def test_records_that_nobody_reads(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker()
    wire = await Wire.connect(broker.port)
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 5)
    await commit(wire, "billing", "t", {0: 1})
    assert await findings(broker, http, "billing") == [], "it is read without membership"
    member = RawMember(wire, "billing", "c1")
    await member.join("t")
    await member.sync("t", {member.member_id: [0]})
    await member.leave("done")
    found, *_ = await findings(broker, http, "billing")
    assert (found["kind"], found["severity"]) == ("no_members", "broken")
    assert found["remedy"].startswith("Do not start it a second time"), "its connection is open"
    assert found["text"] == "billing has no members, and 4 records to read."
    metrics = (await http.get("/metrics")).text
    assert 'barnabas_group_finding{consumergroup="billing",finding="no_members"} 3\n' in metrics
    await commit(wire, "billing", "t", {0: 5})
    assert "no_members" not in {each["kind"] for each in await findings(broker, http, "billing")}
    assert 'finding="no_members"' not in (await http.get("/metrics")).text
    await wire.close()


async def test_groups_that_a_program_makes_anew_at_each_start(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker()
    wire = await Wire.connect(broker.port)
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 5)
    names = [f"nightly-{number}" for number in (1, 2, 3)]
    for name in names:
        member = RawMember(wire, name, "c1")
        await member.join("t")
        await member.sync("t", {member.member_id: [0]})
        await member.leave("done")
        await commit(wire, name, "t", {0: 1})
    for name in names:
        told = {each["kind"]: each for each in await findings(broker, http, name)}
        assert "no_members" not in told
        found = told["new_group_id"]
        assert (found["group"], found["severity"]) == (name, "odd")
        assert found["text"].startswith("3 groups are named nightly-*, and have no members")
    assert 'finding="no_members"' not in (await http.get("/metrics")).text
    await wire.close()


async def test_partitions_that_no_program_of_the_group_reads(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker(num_partitions="3")
    wire = await Wire.connect(broker.port)
    await make_topic(wire, "t")
    await produce(wire, "t", 2, 5)
    await commit(wire, "billing", "t", {0: 0, 1: 0})
    (found,) = await findings(broker, http, "billing")
    assert (found["kind"], found["severity"]) == ("left_out", "odd")
    await commit(wire, "billing", "t", {2: 1})
    assert await findings(broker, http, "billing") == []
    await wire.close()


async def test_committed_offsets_outside_of_their_logs(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker()
    wire = await Wire.connect(broker.port)
    await make_topic(wire, "t")
    await produce(wire, "t", 0, 5)
    await commit(wire, "billing", "t", {0: 9})
    (found,) = await findings(broker, http, "billing")
    assert (found["kind"], found["severity"]) == ("offset_out_of_range", "sick")
    text = "The committed offset of t-0 is 9, and its log ends at 5: there is no such record; "
    assert found["text"].startswith(text)
    assert "(127.0.0.1), User:ANONYMOUS, which is not a member, committed it at" in found["text"]
    await wire.close()


async def test_what_has_happened_to_members(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker()
    wires = [await Wire.connect(broker.port) for _ in range(2)]
    await make_topic(wires[0], "orders")
    await produce(wires[0], "orders", 0, 1)
    member = RawMember(wires[1], "billing", "worker-1")
    await member.join("orders")
    await member.sync("orders", {member.member_id: [0]})
    assert await findings(broker, http, "billing") == []
    await member.leave("consumer poll timeout has expired.")
    (found,) = await findings(broker, http, "billing")
    assert (found["kind"], found["severity"], found["sure"]) == ("slow_poll", "sick", "certain")
    assert re.match(r"worker-1 \(127\.0\.0\.1\) polled too slowly", found["text"])
    for wire in wires:
        await wire.close()


async def test_members_and_the_topics_that_they_subscribe_to(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker()
    wire = await Wire.connect(broker.port)
    await make_topic(wire, "orders")
    member = RawMember(wire, "billing", "worker-1")
    await member.join("orders")
    await member.sync("orders", {member.member_id: [0]})
    (found,) = await findings(broker, http, "billing")
    assert (found["kind"], found["severity"]) == ("empty_topic", "odd")
    assert found["text"] == "worker-1 (127.0.0.1) subscribes to orders, which has no record."
    await wire.close()


async def test_a_transaction_that_members_wait_for(start_broker: StartBroker, http: Http) -> None:
    broker = await start_broker()
    wire = await Wire.connect(broker.port)
    await make_topic(wire, "t")
    async with Producer(bootstrap_servers=f"127.0.0.1:{broker.port}", transactional_id="pay") as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"one")
        await commit(wire, "billing", "t", {0: 0})
        assert await findings(broker, http, "billing") == [], "it may be at work"
        wall_ms = broker.view.wall_ms
        broker.view.wall_ms = lambda: wall_ms() + 25_000
        assert await findings(broker, http, "billing") == [], "it may commit at intervals"
        broker.view.wall_ms = lambda: wall_ms() + 31_000
        (found,) = await findings(broker, http, "billing")
        assert (found["kind"], found["severity"], found["sure"]) == ("open_transaction", "sick", "probable")
        assert found["text"].startswith("t-0: read_committed consumers wait at offset 0 for an open transaction of")
        assert " (pay), open for 31" in found["text"]
        assert ", without a record for 31" in found["text"]
        await producer.commit_transaction()
    await wire.close()


def diagnosis(kind: str) -> Diagnosis:
    return Diagnosis("g", kind, ODD, "text", "certain")


def test_a_group_is_examined_again_when_it_has_changed() -> None:
    kept = Diagnoses()
    assert kept.is_due("g", 1)
    kept.put("g", 1, [diagnosis("a")])
    assert not kept.is_due("g", 1)
    assert kept.is_due("g", 2)
    kept.end_round({"other"})
    assert kept.of("g") == ()
    assert kept.is_due("g", 1)


def test_groups_and_their_findings_are_bounded() -> None:
    kept = Diagnoses()
    kept.put("g", 1, [diagnosis(str(n)) for n in range(100)])
    assert [each.kind for each in kept.of("g")] == [str(n) for n in range(20)]
    for n in range(MOST_GROUPS):
        kept.put(f"g{n}", 1, ())
    assert not kept.is_due("one more", 1)
    assert kept.is_due("g", 2)
