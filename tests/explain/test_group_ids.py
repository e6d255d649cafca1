"""Groups that one program makes, a new one each time it starts."""

import pytest

from barnabas_explain.catalog import MemberJoined, MemberLeft
from barnabas_explain.doctor import SEVERITIES, Diagnosis, Present, Reader, examine
from barnabas_explain.group_ids import OneLife, Sign, Spelling, meant, one_life, sign, together, with_together
from barnabas_explain.members import Member
from barnabas_explain.records import EventRecord
from barnabas_explain.words import moment
from tests.explain.reading import read
from tests.explain.test_findings import event

UUIDS = [f"nightly-09a65d40-1111-4222-8333-44445555666{number}" for number in range(3)]


def life(group: str, at: int, *, client: str = "nightly", took: int = 4_000) -> list[EventRecord]:
    return [
        {**event(MemberJoined, at, client=client), "group": group},
        {**event(MemberLeft, at + took, client=client), "group": group},
    ]


def seen(group: str, *records: EventRecord, state: str = "Empty", had_members: bool = True) -> OneLife | None:
    return one_life(Present(group, state, had_members=had_members), read(list(records)))


def found(names: list[str], *, client: str = "nightly", step: int = 10_000) -> dict[str, Diagnosis]:
    lives = [seen(name, *life(name, at * step, client=client)) for at, name in enumerate(names)]
    return together([each for each in lives if each is not None])


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["nightly-09a65d40", "nightly-c41d8e7f", "nightly-1b2c3d4e"], "nightly-*"),
        (UUIDS, "nightly-*"),
        (["nightly1", "nightly2", "nightly17"], "nightly*"),
        (["job-2026-11-28T04:41", "job-2026-11-28T04:42", "job-2026-11-28T04:43"], "job-*"),
    ],
    ids=["hexadecimal", "UUID", "number", "time"],
)
def test_groups_of_one_program_are_one_finding(names: list[str], pattern: str) -> None:
    diagnoses = found(names)
    assert sorted(diagnoses) == sorted(names)
    (one,) = set(diagnoses.values())
    assert (one.group, one.kind, SEVERITIES[one.severity], one.sure) == (pattern, "new_group_id", "odd", "probable")
    assert one.text == (
        f"3 groups are named {pattern}, and have no members: each had one member once, with the client id nightly, for"
        " 4 s. Its program probably makes a new group.id each time it starts, and begins at its auto.offset.reset each"
        " time."
    )
    assert one.remedy is not None and one.remedy.startswith("Give it a fixed group.id")


def test_it_replaces_the_finding_that_each_group_has_no_members() -> None:
    names = ["nightly-09a65d40", "nightly-c41d8e7f", "nightly-1b2c3d4e"]
    single = [
        each
        for name in [*names, "other"]
        for each in examine(Present(name, "Empty", lags={("t", 0): 5}), read(life(name, 0)), 9_000, 0)
    ]
    assert [each.kind for each in single] == ["no_members"] * 4
    assert [each.group for each in with_together(single, found(names))] == ["other"]


def test_older_groups_of_the_pattern_whose_events_are_gone_count() -> None:
    names = ["nightly-09a65d40", "nightly-c41d8e7f", "nightly-1b2c3d4e"]
    lives = [seen(name, *life(name, at * 10_000)) for at, name in enumerate(names)]
    older = seen("nightly-77aa88bb")
    diagnoses = together([each for each in (*lives, older) if each is not None])
    assert diagnoses["nightly-77aa88bb"].text.startswith("4 groups are named nightly-*")
    assert together([OneLife(name, "nightly-*") for name in names]) == {}, "nothing is known of them"


def test_clients_of_java_have_the_group_in_their_ids() -> None:
    names = ["nightly-09a65d40", "nightly-c41d8e7f", "nightly-1b2c3d4e"]
    lives = [seen(name, *life(name, 0, client=f"consumer-{name}-1")) for name in names]
    diagnoses = together([each for each in lives if each is not None])
    assert "with the client id consumer-nightly-*-1" in diagnoses[names[0]].text


def test_other_groups_are_left_alone() -> None:
    assert found(["billing", "mail", "scan"]) == {}
    assert found(["team-facade", "team-decade", "team-deface"]) == {}, "these are words"
    assert found(["nightly-09a65d40", "nightly-c41d8e7f"]) == {}, "two may be chance"
    assert found(["worker-1", "worker-2", "worker-3"], step=100) == {}, "they ran side by side"
    lives = [OneLife(f"job-{number}", "job-*", f"c{number}", number, number) for number in range(3)]
    assert together(lives) == {}, "they are different programs"


@pytest.mark.parametrize(
    ("records", "state", "had_members"),
    [
        (life("g-1", 0), "Stable", True),
        (life("g-1", 0), "Empty", False),
        (life("g-1", 0) + life("g-1", 9_000), "Empty", True),
        (life("g-1", 0)[:1], "Empty", True),
    ],
    ids=["it has members", "it never had members", "two lives", "half a life"],
)
def test_a_group_that_has_not_lived_once(records: list[EventRecord], state: str, had_members: bool) -> None:
    assert seen("g-1", *records, state=state, had_members=had_members) is None


def active(group: str, client: str = "worker", topic: str = "t") -> Spelling:
    reader = Reader(Member("m", client, "/h", None), frozenset({topic}), frozenset({(topic, 0)}))
    known = sign(Present(group, "Stable", [reader]), ())
    assert isinstance(known, Spelling)
    return known


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["mailer-7f9c4-k2x9p", "mailer-7f9c4-m4tqz", "mailer-7f9c4-zz7lq"], "mailer-7f9c4-*"),
        (["mailer-3b1f9c0a77de", "mailer-00c1e2f3a4b5", "mailer-9d8e7f6a5b4c"], "mailer-*"),
        (UUIDS, "nightly-*"),
    ],
    ids=["pods", "containers", "UUIDs"],
)
def test_instances_with_a_group_each_are_possibly_one_program(names: list[str], pattern: str) -> None:
    diagnoses = together([active(name) for name in names])
    assert sorted(diagnoses) == sorted(names)
    (one,) = set(diagnoses.values())
    assert (one.group, one.kind, SEVERITIES[one.severity], one.sure) == (pattern, "group_each", "odd", "possible")
    assert one.text == (
        f"3 groups are named {pattern}, and have one member each, with the client id worker, that reads t: they are"
        " possibly instances of one program with a group.id each, which ends in the name of the machine. Then each"
        " record is handled 3 times."
    )
    assert one.remedy is not None and "(a broadcast), nothing" in one.remedy


PODS = ["mailer-k2x9p", "mailer-m4tqz", "mailer-zz7lq"]


@pytest.mark.parametrize(
    "groups",
    [
        [active(name) for name in PODS[:2]],
        [active(name) for name in ("mailer-north", "mailer-south", "mailer-paris")],
        [active(name) for name in ("mailer-1", "mailer-2", "mailer-3")],
        [active(name) for name in ("mailer-20261128", "mailer-20261129", "mailer-20261130")],
        [active(name, client=name[-1]) for name in PODS],
        [active(name, topic=name[-1]) for name in PODS],
    ],
    ids=["two groups", "words", "numbers", "days", "other clients", "other topics"],
)
def test_groups_that_are_side_by_side_on_purpose(groups: list[Spelling]) -> None:
    assert together(groups) == {}


def test_clients_of_java_in_a_group_each() -> None:
    assert set(together([active(name, f"consumer-{name}-1") for name in PODS])) == set(PODS)


def test_a_group_with_two_members_is_shared() -> None:
    readers = [Reader(Member(name, "worker", "/h", None), frozenset({"t"}), frozenset()) for name in ("m", "n")]
    shared = [sign(Present(name, "Stable", readers), ()) for name in PODS]
    assert together([each for each in shared if each is not None]) == {}


def test_a_group_id_that_is_spelt_in_two_ways() -> None:
    found = together([active("invoices"), active("Invoices"), active("orders")])
    assert sorted(found) == ["Invoices", "invoices"]
    (one,) = set(found.values())
    assert (one.group, one.kind, SEVERITIES[one.severity], one.sure) == (
        "Invoices and invoices",
        "two_spellings",
        "sick",
        "probable",
    )
    assert one.text == (
        "Invoices and invoices are probably one group whose id is spelt in two ways: they differ only in case, blanks"
        " or separators, and both have members with the client id worker that read t. Each group gets all records, so"
        " that each record is handled twice."
    )


@pytest.mark.parametrize("other", ["eu_invoices", "eu.invoices", "eu-invoices ", "EU-Invoices"])
def test_what_two_spellings_differ_in(other: str) -> None:
    assert len(together([active("eu-invoices"), active(other)])) == 2


def test_clients_of_java_have_the_spelling_of_the_group_in_their_ids() -> None:
    both = [active(group, f"consumer-{group}-1") for group in ("eu-invoices", "EU_invoices")]
    assert len(together(both)) == 2


@pytest.mark.parametrize(
    "other",
    [active("Invoices", "another"), active("Invoices", topic="u"), active("invoices-2")],
    ids=["another program", "another topic", "another group"],
)
def test_groups_that_are_no_spellings_of_one(other: Spelling) -> None:
    assert together([active("invoices"), other]) == {}


@pytest.mark.parametrize(
    ("group", "others", "found"),
    [
        ("invoice", ["invoices", "orders"], "invoices"),
        ("Invoices", ["invoices"], "invoices"),
        ("invoices-1", ["invoices-2"], None),
        ("payments", ["invoices"], None),
        ("d4b", ["d4"], None),
        ("ab", ["Ab"], "Ab"),
        ("invoices", ["invoices"], None),
    ],
)
def test_the_group_that_was_perhaps_meant(group: str, others: list[str], found: str | None) -> None:
    assert meant(group, others) == found


def left_behind(group: str = "sync", client: str = "sync", lag: int = 7) -> Sign | None:
    """A group without members; its last one was gone at 5,000."""
    lives = [*life(group, 0, client=client, took=2_000), *life(group, 3_000, client=client, took=2_000)]
    return sign(Present(group, "Empty", lags={("t", 0): lag}), read(lives))


def began(at: int, group: str = "sync-v2", client: str = "sync", topic: str = "t", generation: int = 0) -> Sign | None:
    """A group with a member that joined so long after zero."""
    reader = Reader(Member("m", client, "/h", None), frozenset({topic}), frozenset({(topic, 0)}))
    joined = {**life(group, at, client=client)[0], "generation": generation}
    return sign(Present(group, "Stable", [reader]), read([joined]))


def test_a_group_whose_program_has_another_group_id_now_needs_no_member() -> None:
    diagnoses = together(filter(None, [left_behind(), began(6_000)]))
    (renamed,) = diagnoses.values()
    assert (renamed.group, renamed.kind, renamed.as_data()["severity"], renamed.sure) == (
        "sync",
        "renamed",
        "odd",
        "probable",
    )
    assert renamed.text == (
        f"sync has no members since {moment(5_000)}, and 7 records to read: its program is probably in the group"
        f" sync-v2 now, which began at {moment(6_000)}, and has a member with the client id sync that reads t, too."
    )
    assert "`barnabas groups delete sync`" in str(renamed.remedy)
    alone = examine(Present("sync", "Empty", lags={("t", 0): 7}), [], 9_000, 0)
    assert with_together(alone, diagnoses) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (left_behind(), began(6_000, client="other")),
        (left_behind(), began(6_000, topic="u")),
        (left_behind(), began(6_000, generation=3)),
        (left_behind(), began(2_500)),
        (left_behind(client="rdkafka"), began(6_000, client="rdkafka")),
        (left_behind(lag=0), began(6_000)),
    ],
    ids=[
        "another program",
        "another topic",
        "it may be older",
        "the old one was started after it",
        "a name that its library has chosen",
        "nothing to read",
    ],
)
def test_a_group_whose_program_is_gone_is_not_called_renamed(old: Sign | None, new: Sign | None) -> None:
    assert together(filter(None, [old, new])) == {}
