"""Why a group rebalanced, for programs: what ``barnabas groups explain`` and ``groups doctor`` have, typed.

::

    from barnabas.explain import explain_group

    story = await explain_group("billing", bootstrap_servers="localhost:9092")
    for finding in story.findings:
        print(finding.text, finding.remedy)
    print(story)

Barnabas brokers record the events of groups. For others they are rebuilt from ``__consumer_offsets``, of the last day
unless an earlier time is given; where that may not be read, only the present is known.
"""

import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import Final, Unpack

from barnabas_broker.http.report import report
from barnabas_client.admin.admin import Admin
from barnabas_client.config import ClientSettings
from barnabas_client.consumer.consumer import Consumer
from barnabas_client.history.ports import Connect
from barnabas_client.history.present import examined
from barnabas_client.history.sources import History, Newest, find_history
from barnabas_explain.catalog import GroupEvent
from barnabas_explain.chart import chart
from barnabas_explain.doctor import Diagnosis, with_now
from barnabas_explain.explain import Explanation, explain
from barnabas_explain.records import decode_event
from barnabas_explain.words import moment

__all__ = ["Diagnosis", "Explanation", "GroupEvent", "GroupStory", "explain_group", "follow_group"]

#: Seconds from one look at a group that is followed to the next: after new events, and without any. A look takes about
#: ten requests.
_LOOK_AFTER_EVENTS_S: Final = 1.0
_LOOK_S: Final = 30.0


@dataclass(frozen=True)
class GroupStory:
    """Explanations of a group. Iterating gives the explanations; ``print`` shows them, and so does a notebook.

    Attributes:
        group: its id.
        explanations: what happened and why, oldest first; then how the group is now, unless one generation was asked
            for.
        events: the events that they are made of, oldest first.
        findings: what is wrong with it now, and was in the last hour or since the time that was asked for, worst first,
            as `barnabas groups doctor` says.
        note: where the events come from, if they were not recorded by the brokers; None if they were.
        dropped: older events that were left out, because there are too many.
        read_ms: when they were read, in ms since 1970.
    """

    group: str
    explanations: list[Explanation]
    events: list[GroupEvent] = field(repr=False)
    findings: list[Diagnosis]
    note: str | None = None
    dropped: int = 0
    read_ms: int = 0

    def __iter__(self) -> Iterator[Explanation]:
        return iter(self.explanations)

    def __len__(self) -> int:
        return len(self.explanations)

    def __str__(self) -> str:
        return "\n".join(line for each in self.explanations for line in _lines(each))

    def _repr_html_(self) -> str:
        """The chart with findings and explanations, for notebooks."""
        first = self.events[0].time if self.events else 0
        made = {"since": first, **chart(self.events), "findings": [each.as_data() for each in self.findings]}
        page = report(self.group, made, time_ms=self.read_ms)
        return f'<iframe srcdoc="{escape(page)}" style="width: 100%; height: 800px; border: 0"></iframe>'


def _lines(explanation: Explanation) -> Iterator[str]:
    yield f"{moment(explanation.time)}  {explanation.text}"
    yield from (f"    {line}" for line in explanation.details)
    if explanation.remedy is not None:
        yield f"    To do: {explanation.remedy}"


async def explain_group(
    group_id: str, *, since_ms: int | None = None, generation: int | None = None, **settings: Unpack[ClientSettings]
) -> GroupStory:
    """Read and explain the events of a group until now.

    Args:
        group_id: the group.
        since_ms: only what happened from this time on, in ms since 1970.
        generation: only the rebalance that led to this generation.
        settings: those that all clients have, such as `bootstrap_servers`.

    Raises:
        UnknownTopicOrPartitionError: no group has been used on these brokers yet.
        KafkaError: the events cannot be read.
        TypeError, ValueError: a setting is invalid; the message names it and what would be right.
    """
    connect = partial(Consumer, **settings)
    async with Admin(**settings) as admin:
        history = await find_history(connect, admin, group_id, since_ms)
        newest = await _read(history)
        newest.add(history.finish())
        return await _story(admin, connect, group_id, history, newest, since_ms, generation)


async def follow_group(
    group_id: str, *, since_ms: int | None = None, **settings: Unpack[ClientSettings]
) -> AsyncGenerator[GroupStory, None]:
    """Yield the story of a group until now, and again when it changes, without end.

    A story follows new events, once a second at most. Without events the group is examined every 30 s, and a story
    follows when a finding has come or gone, such as that of a group whose topic has got its first record.

    Arguments and errors are those of :func:`explain_group`.
    """
    connect = partial(Consumer, **settings)
    async with Admin(**settings) as admin:
        history = await find_history(connect, admin, group_id, since_ms)
        newest = await _read(history)
        story = await _story(admin, connect, group_id, history, newest, since_ms)
        yield story
        known, looked, is_new = _kinds(story), time.monotonic(), False
        async for found in history.follow():
            newest.add(found)
            is_new = is_new or bool(found)
            if time.monotonic() - looked < (_LOOK_AFTER_EVENTS_S if is_new else _LOOK_S):
                continue
            story = await _story(admin, connect, group_id, history, newest, since_ms)
            if is_new or _kinds(story) != known:
                yield story
            known, looked, is_new = _kinds(story), time.monotonic(), False


async def _read(history: History) -> Newest:
    newest = Newest()
    async for found in history.read(lambda count: None):
        newest.add(found)
    return newest


async def _story(
    admin: Admin,
    connect: Connect,
    group: str,
    history: History,
    newest: Newest,
    since_ms: int | None,
    generation: int | None = None,
) -> GroupStory:
    """The story of a group: its events, and how it is now."""
    events = [event for event in map(decode_event, newest.values()) if event is not None]
    findings = (await examined(admin, connect, group, events, since_ms)).diagnoses
    now = time.time_ns() // 1_000_000
    explanations = explain(events, since=since_ms, generation=generation)
    return GroupStory(
        group,
        explanations if generation is not None else with_now(explanations, findings, now),
        events if since_ms is None else [event for event in events if event.time >= since_ms],
        findings,
        history.note,
        newest.dropped,
        now,
    )


def _kinds(story: GroupStory) -> list[str]:
    """The kinds of the findings, whose texts have figures that change all the time."""
    return sorted(each.kind for each in story.findings)
