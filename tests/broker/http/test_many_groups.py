"""A broker with very many groups: what goes through all of them lets the event loop run in between."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

from barnabas_broker.groups.classic.group import ClassicGroup, GroupSettings
from barnabas_broker.groups.coordinator.hosting import HostedGroup
from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_broker.http import metrics
from barnabas_broker.http.diagnoses import Diagnoses
from barnabas_broker.http.groups import all_groups
from barnabas_broker.http.samples import Samples
from barnabas_broker.http.text import PIECE
from barnabas_broker.http.view import View
from barnabas_explain.storm_score import StormScore
from barnabas_protocol.group_records import Committed

COUNT = 10 * PIECE


def view_of(hosted: dict[str, HostedGroup]) -> Any:
    """What the walks need of a view."""
    log = SimpleNamespace(high_watermark=9, last_stable_offset=9)
    image = SimpleNamespace(topics={"t": SimpleNamespace(partitions=(None,))})
    view = SimpleNamespace(
        groups=SimpleNamespace(groups=hosted, share_groups=SimpleNamespace(all=list)),
        queues=SimpleNamespace(hosted=()),
        cluster=SimpleNamespace(image=image),
        history=SimpleNamespace(storm_score=lambda group: StormScore().at(0), is_flapping=lambda group: False),
        samples=Samples(),
        diagnoses=Diagnoses(),
        unloaded=list,
        now=lambda: 0.0,
        wall_ms=lambda: 0,
        log=lambda topic, partition: log,
    )
    view.known_groups = lambda: View.known_groups(cast("View", view))
    view.positions = lambda image, each: View.positions(cast("View", view), image, each)
    return view


def many(*, used: bool) -> dict[str, HostedGroup]:
    """Groups by id, with an offset if they are used."""
    settings = GroupSettings(new_id=lambda: "id", initial_delay=0, max_size=10)
    found = {}
    for number in range(COUNT):
        offsets = GroupOffsets()
        if used:
            offsets.apply("t", 0, Committed(5, -1, "", 0, -1, number), number)
        group = ClassicGroup(f"g{number}", settings, 0.0)
        found[group.group_id] = HostedGroup(cast("Any", None), group, offsets)
    return found


def test_groups_that_are_not_used_cost_turns_too() -> None:
    assert list(View.known_groups(view_of(many(used=False)))) == [None] * (COUNT // PIECE)


def test_a_group_may_go_and_come_between_two_turns() -> None:
    hosted = many(used=True)
    walk = View.known_groups(view_of(hosted))
    first = next(walk)
    assert first is not None
    del hosted["g1"]
    hosted["new"] = hosted["g0"]
    names = [each.group.group_id for each in walk if each is not None]
    assert len(names) == COUNT - 2
    assert "g1" not in names


def test_the_list_of_groups_is_made_in_turns() -> None:
    pieces = list(all_groups(view_of(many(used=True))))
    assert pieces.count("") == COUNT // PIECE
    assert "".join(pieces).count('"group": ') == COUNT


def test_the_metrics_of_groups_are_made_in_turns_and_freed_in_turns() -> None:
    view = view_of(many(used=True))
    lines: Iterator[str] = metrics._groups(view, view.cluster.image)
    pieces = list(lines)
    assert all(piece.count("\n") <= PIECE + 2 for piece in pieces)
    assert sum(piece.count("kafka_consumergroup_lag{") for piece in pieces) == COUNT
    samples = metrics._GroupSamples()
    for hosted in (each for each in view.known_groups() if each is not None):
        samples.add_members(hosted, "g", 0.0)
    assert len(samples.members) == COUNT
    first = next(samples.families())
    assert (len(samples.members), first.count("\n")) == (COUNT - PIECE, PIECE + 2)
