"""Programs ask why a group rebalanced: they have what the command line has, typed."""

import asyncio
from contextlib import aclosing

import pytest

import barnabas.explain
from barnabas.errors import UnknownTopicOrPartitionError
from barnabas.explain import GroupStory, explain_group, follow_group
from barnabas_broker.broker import BrokerServer
from barnabas_explain.catalog import MemberLeft
from tests.broker.http.support import make_topic, produce
from tests.browser.scenes import RawMember
from tests.wire import PATIENCE, Wire


async def joined(wire: Wire, group: str) -> RawMember:
    """A member that owns the partition of its topic."""
    member = RawMember(wire, group, "worker-1")
    await member.join("t")
    await member.sync("t", {member.member_id: [0]})
    return member


async def test_a_group_is_explained(own_broker: BrokerServer) -> None:
    address = f"127.0.0.1:{own_broker.port}"
    wire = await Wire.connect(own_broker.port)
    await make_topic(wire, "t")
    member = await joined(wire, "billing")
    await member.leave("consumer poll timeout has expired.")
    async with asyncio.timeout(PATIENCE):
        while "left" not in str(story := await explain_group("billing", bootstrap_servers=address)):
            pass  # events are written a little later
    assert isinstance(story, GroupStory)
    assert [each.generation for each in story] == [each.generation for each in story.explanations]
    assert len(story) == len(story.explanations) >= 2
    assert any(isinstance(event, MemberLeft) for event in story.events)
    (finding,) = story.findings
    assert (finding.kind, finding.sure) == ("slow_poll", "certain")
    assert "worker-1 (127.0.0.1) polled too slowly" in str(story)
    assert "    To do: " in str(story)
    assert story.note is None
    (first,) = await explain_group("billing", generation=1, bootstrap_servers=address)
    assert first.text.startswith("Generation 1: ")
    later = await explain_group("billing", since_ms=story.events[-1].time + 1, bootstrap_servers=address)
    assert (later.explanations, later.events, later.findings) == ([], [], [])
    await wire.close()


async def test_a_story_ends_with_how_the_group_is_now(own_broker: BrokerServer) -> None:
    """It is what `barnabas groups doctor` finds."""
    wire = await Wire.connect(own_broker.port)
    await make_topic(wire, "t")
    await joined(wire, "billing")
    story = await explain_group("billing", bootstrap_servers=f"127.0.0.1:{own_broker.port}")
    (finding,) = story.findings
    assert (finding.kind, finding.text) == ("empty_topic", story.explanations[-1].text)
    assert finding.text == "worker-1 (127.0.0.1) subscribes to t, which has no record."
    await wire.close()


async def test_a_notebook_draws_the_chart(own_broker: BrokerServer) -> None:
    wire = await Wire.connect(own_broker.port)
    await make_topic(wire, "t")
    await joined(wire, "<b>&")
    story = await explain_group("<b>&", bootstrap_servers=f"127.0.0.1:{own_broker.port}")
    shown = story._repr_html_()
    assert shown.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert shown.count("<") == 2, "nothing of the page is outside of the frame"
    await wire.close()


async def test_a_group_is_followed(own_broker: BrokerServer) -> None:
    wire = await Wire.connect(own_broker.port)
    await make_topic(wire, "t")
    member = await joined(wire, "billing")
    async with (
        asyncio.timeout(PATIENCE),
        aclosing(follow_group("billing", bootstrap_servers=f"127.0.0.1:{own_broker.port}")) as stories,
    ):
        first = await anext(stories)
        await member.leave()
        story = first
        while not any(isinstance(event, MemberLeft) for event in story.events):
            story = await anext(stories)
    assert len(story.events) > len(first.events)
    await wire.close()


async def test_a_story_that_is_followed_ends_with_how_the_group_is_then(
    own_broker: BrokerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a finding goes without an event, as when a topic gets its first record."""
    wire = await Wire.connect(own_broker.port)
    await make_topic(wire, "t")
    await joined(wire, "billing")
    monkeypatch.setattr(barnabas.explain, "_LOOK_S", 0.01)
    async with (
        asyncio.timeout(PATIENCE),
        aclosing(follow_group("billing", bootstrap_servers=f"127.0.0.1:{own_broker.port}")) as stories,
    ):
        story = await anext(stories)
        while not story.findings:
            story = await anext(stories)  # The events of the rebalance come a little later.
        (finding,) = story.findings
        assert (finding.kind, finding.text) == ("empty_topic", story.explanations[-1].text)
        assert await produce(wire, "t", 0, 1) == 0
        later = await anext(stories)
    assert (later.findings, len(later.events)) == ([], len(story.events))
    await wire.close()


async def test_brokers_without_groups(own_broker: BrokerServer) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=r"no group has been used here yet.*advertised\.listeners"):
        await explain_group("billing", bootstrap_servers=f"127.0.0.1:{own_broker.port}")
