"""Committed offsets that stand still, or are after the end of the log: what is seen, inferred, and broken."""

from dataclasses import replace
from typing import Any

import pytest

from barnabas_explain.catalog import (
    BrokerNotReached,
    CommitsBeyondEnd,
    CommitsLastRecord,
    CommitsOften,
    CommitsRefused,
    CommitsWentBack,
    LagGrows,
    MemberRewound,
    MemberSkipped,
    NothingCommitted,
    NothingFetched,
    OffsetsAltered,
    OffsetsStuck,
    install_codec,
)
from barnabas_explain.explain import explain
from barnabas_explain.members import Member
from barnabas_explain.records import EventRecord
from barnabas_explain.words import clock
from tests.explain.reading import read
from tests.explain.test_doctor import behind as behind_of
from tests.explain.test_doctor import present, reader, told
from tests.explain.test_findings import RDKAFKA, event, left
from tests.explain.test_unowned import move, over

STANDS = "c1 (h) is a member, and the committed offset of t-0 has stood at 5 for 6 min, while 15 records wait there"
POISON = "`barnabas consume t -p 0 -o 5 -n 10`"


def stuck(at: int = 199_000, **data: Any) -> EventRecord:
    known = {"positions": [["t", 0, 5]], "records": 15, "stood_ms": 360_000, "fetches": "none"}
    return event(OffsetsStuck, at, client="c1", **{**known, **data})


STILL = present(reader(1, partitions=(0, 1)), committed={("t", 0): 5, ("t", 1): 9}, lags={("t", 0): 15, ("t", 1): 1})


def test_an_offset_that_was_reported_with_others_and_again_alone_is_one_finding() -> None:
    both = stuck(150_000, positions=[["t", 0, 5], ["t", 1, 9]], records=16, stood_ms=300_000)
    moved = replace(STILL, committed={("t", 0): 5, ("t", 1): 10})
    (found,) = told(moved, both, stuck(199_000))
    assert "has stood at 5 for 6 min" in found.text


@pytest.mark.parametrize(
    ("data", "kind", "severity", "text", "remedy"),
    [
        (
            {"fetches": "again", "offset": 5, "deliveries": 12},
            "stuck",
            "broken",
            f"{STANDS}. It got the records from offset 5 on 12 times: it probably fails at a record there each time,"
            " and reads it again (a poison record).",
            POISON,
        ),
        (
            {
                "fetches": "again",
                "offset": 5,
                "deliveries": 12,
                "every_ms": 15_000,
                "reconnects": 12,
                "response_bytes": 402_167,
                "max_bytes": 60_000,
            },
            "stuck",
            "broken",
            f"{STANDS}. It closes its connection each time after a Fetch response with 402,167 bytes of t-0 from offset"
            " 5 on (it asks for at most 60,000, and a batch is sent whole), 12 times since then: its"
            " receive.message.max.bytes is probably too small.",
            "Set receive.message.max.bytes of c1 (h) to 420,000 or more",
        ),
        (
            {
                "fetches": "again",
                "offset": 5,
                "deliveries": 12,
                "reconnects": 12,
                "response_bytes": 402_167,
                "max_bytes": 500_000,
            },
            "stuck",
            "broken",
            f"{STANDS}. Its connection ends each time after a Fetch response with 402,167 bytes of t-0 from offset 5"
            " on, 12 times since then: its client, or something between it and the broker, probably refuses that"
            " response.",
            "Do not skip records before that is known",
        ),
        (
            {
                "fetches": "again",
                "offset": 5,
                "deliveries": 12,
                "reconnects": 12,
                "gives_up_ms": 11_007,
                "response_bytes": 402_167,
                "max_bytes": 500_000,
            },
            "stuck",
            "broken",
            f"{STANDS}. Its connection ends each time after a Fetch response with 402,167 bytes of t-0 from offset 5"
            " on, 12 times since then, about 11 s after it has asked: the response probably takes longer than its"
            " client waits (request.timeout.ms; socket.timeout.ms of librdkafka).",
            "Lower fetch.max.bytes and max.partition.fetch.bytes of c1 (h)",
        ),
        (
            {"fetches": "again", "offset": 5, "deliveries": 12, "every_ms": 15_000},
            "not_committed",
            "odd",
            f"{STANDS}. It got the same records 12 times, one time about 15 s after the other: it waits before it works"
            " on them (a delay or a back-off), or works on them for so long and fails.",
            "If it is to wait until a record is old enough, or until what it calls answers: it needs no change",
        ),
        (
            {"fetches": "beyond", "ahead": 15},
            "not_committed",
            "odd",
            f"{STANDS}. It fetched up to 15 records after that: it reads on and commits seldom or never, or it does not"
            " finish a record there.",
            "let it commit (enable.auto.commit",
        ),
        (
            {"fetches": "unknown"},
            "not_committed",
            "odd",
            f"{STANDS}. Other members have its client id and address, so that its Fetches are not told apart: it"
            " commits seldom or never, or it does not get on.",
            "With a client.id for each program, more can be said",
        ),
        (
            {"fetched_ago_ms": 355_000},
            "stuck",
            "broken",
            f"{STANDS}. Its heartbeats go on, and its last Fetch was 6 min ago: its program probably stands still in"
            " the records that it has (a call without a timeout, a deadlock, a thread or task that has ended, one batch"
            " that takes so long), and keeps its partitions.",
            "max.poll.interval.ms",
        ),
        (
            {"fetched_ago_ms": 100, "software": RDKAFKA, "rebalance_timeout_ms": 300_000},
            "not_committed",
            "odd",
            f"{STANDS}. Its heartbeats go on, and it does not fetch it. It polls, as it would otherwise have left after"
            " its max.poll.interval.ms of 5 min: it has probably paused it, and not resumed, or it works through what"
            " it has fetched before, and commits seldom.",
            "pause, resume",
        ),
        (
            {"fetched_ago_ms": 100, "software": "sarama 1.4", "rebalance_timeout_ms": 300_000},
            "not_committed",
            "odd",
            f"{STANDS}. Its heartbeats go on, and it does not fetch it: it has probably paused it, or stands still in"
            " records of it that it has.",
            "pause, resume",
        ),
        (
            {"fetches": "beyond", "ahead": 15, "committed_ago_ms": 3_000},
            "not_committed",
            "odd",
            f"{STANDS}. It fetched up to 15 records after that, and it has committed 3 s ago, but no later offset of"
            " it: perhaps it commits only some records (a filter that passes over others without a commit), or only"
            " some partitions; or it works through records of other partitions first, or it does not finish a record"
            " there.",
            "commit the offset after the records that it passes over, too, and look whether its lag grows",
        ),
        (
            {"fetches": "beyond", "ahead": 15, "committed_ago_ms": 3_000, "lag_of_others": 1},
            "not_committed",
            "sick",
            f"{STANDS}. It fetched up to 15 records after that, its heartbeats go on, and it has committed its other"
            " partitions 3 s ago, in which 1 record waits. It reads on and commits nothing there: perhaps it commits"
            " only some records (a filter that passes over others without a commit), or only some partitions; or the"
            " record at offset 5, or its handler, hangs (a call without a timeout, a deadlock, a thread that has"
            " ended), or one batch takes so long.",
            "Otherwise look where the worker of this partition stands",
        ),
        (
            {"fetches": "beyond", "ahead": 9, "committed_ago_ms": 3_000, "lag_of_others": 1},
            "not_committed",
            "sick",
            f"{STANDS}. It fetched up to 9 records after that, its heartbeats go on, and it has committed its other"
            " partitions 3 s ago, in which 1 record waits: probably the record at offset 5, or its handler, hangs (a"
            " call without a timeout, a deadlock, a thread that has ended), or one batch takes so long.",
            "Look where the worker of this partition stands",
        ),
        (
            {"fetches": "beyond", "ahead": 9, "committed_ago_ms": 3_000, "lag_of_others": 900},
            "not_committed",
            "odd",
            f"{STANDS}. It fetched up to 9 records after that, and it has committed 3 s ago, but no later offset of"
            " it: it works through records of other partitions first, or it does not finish a record there.",
            "look whether its lag grows",
        ),
        (
            {"fetches": "none", "fetched_ago_ms": 100, "committed_ago_ms": 3_000},
            "not_committed",
            "odd",
            f"{STANDS}. Its heartbeats go on, and it does not fetch it; it has committed 3 s ago, but no later offset"
            " of it: it has probably paused it, or stands still in records of it that it has.",
            "pause, resume",
        ),
        (
            {"fetches": "asks"},
            "not_committed",
            "odd",
            f"{STANDS}. It asks for it, and does not get past.",
            "Look at its log",
        ),
    ],
    ids=[
        "a poison record",
        "a response that is too large for its client",
        "a response after which the connection ends",
        "a response that takes too long",
        "a delay queue",
        "reading without commits",
        "clients that are alike",
        "a program that stands still",
        "a pause",
        "a library that does not poll",
        "commits of other partitions",
        "commits of some records only, or a worker that hangs",
        "a worker of one partition hangs",
        "other partitions have more to do",
        "a pause of one partition",
        "not known",
    ],
)
def test_an_offset_that_stands_still(data: dict[str, Any], kind: str, severity: str, text: str, remedy: str) -> None:
    (found,) = told(STILL, stuck(**data))
    assert (found.kind, found.as_data()["severity"], found.text) == (kind, severity, text)
    assert remedy in (found.remedy or "")
    assert found.sure == ("possible" if severity == "odd" or "perhaps" in text else "probable")
    (said,) = explain(read([stuck(**data)]))
    assert (said.text, said.remedy) == (text, found.remedy)


TIMED_OUT: dict[str, Any] = {
    "fetches": "again",
    "offset": 5,
    "deliveries": 14,
    "every_ms": 20_000,
    "transactional_id": "orders-1",
    "aborts": 14,
    "open_ms": 19_341,
    "transaction_timeout_ms": 10_000,
    "is_own": True,
}
ABORTED = "aborted 14 times since then, because their timeout of 10 s was over (one was open for 19.3 s), so that it"


def test_a_member_whose_transactions_are_aborted_by_their_timeout() -> None:
    (found,) = told(STILL, stuck(**TIMED_OUT))
    assert (found.kind, found.as_data()["severity"]) == ("stuck", "broken")
    assert found.text == (
        f"{STANDS}: its transactions (orders-1) were {ABORTED} commits nothing and gets the same records again."
    )
    assert str(found.remedy).startswith("Set transaction.timeout.ms of its producer above the time that a batch takes")
    assert "`barnabas transactions explain orders-1`" in str(found.remedy)
    assert "reset-offsets" not in str(found.remedy)


def test_a_member_that_waits_and_commits_in_transactions_of_another_coordinator() -> None:
    (found,) = told(STILL, stuck(**{key: TIMED_OUT[key] for key in (*AGAIN, "every_ms", "transactional_id")}))
    assert found.text.endswith("or works on them for so long and fails, or its transactions (orders-1) are aborted.")
    assert "`barnabas transactions explain orders-1` has those that were aborted" in str(found.remedy)


def test_transactions_of_the_same_host_that_are_aborted_each_time_are_probably_its_own() -> None:
    (found,) = told(STILL, stuck(**TIMED_OUT | {"is_own": False}))
    assert f"its transactions (orders-1) were probably {ABORTED}" in found.text
    assert "from the same address, and each time that it read again, one had been aborted just before" in found.text
    assert found.sure == "probable"


def test_a_group_that_never_commits_because_its_transactions_are_aborted() -> None:
    data = {key: value for key, value in TIMED_OUT.items() if key != "fetches"} | {"is_own": False, "offset": 0}
    (found,) = told(
        present(reader(1, partitions=(0,))),
        event(NothingCommitted, 199_000, client="c1", partitions={"t": [0]}, ahead=20, stood_ms=360_000, **data),
    )
    assert (found.kind, found.as_data()["severity"]) == ("stuck", "broken")
    assert f"no committed offset: its transactions (orders-1) were probably {ABORTED}" in found.text


#: A member that has a day for a batch, whose Fetches go on.
HIDDEN: dict[str, Any] = {"software": RDKAFKA, "rebalance_timeout_ms": 86_400_000, "session_ms": 45_000}
STANDS_STILL = "its program probably stands still in the records that it has"
HIDES = "its max.poll.interval.ms of 24 h hides it, as it would leave only after that time."


def test_a_program_that_stands_still_while_its_library_fetches_ahead_and_the_others_keep_up() -> None:
    ahead: dict[str, Any] = {"fetches": "beyond", "ahead": 15, "commits": 12, "committed_ago_ms": 361_000, **HIDDEN}
    (found,) = told(STILL, stuck(**ahead, others_keep_up=True))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("stuck", "broken", "probable")
    assert found.text == (
        f"{STANDS}. It fetched up to 15 records after that, but has not committed for 6 min, after 12 commits, while"
        f" the other members keep up: {STANDS_STILL} (a call without a timeout, a deadlock, a thread or task that has"
        f" ended, one batch that takes so long), and librdkafka fetches ahead, and keeps its partitions: {HIDES}"
    )
    assert "Set max.poll.interval.ms a little above what a batch takes" in str(found.remedy)
    (alone,) = told(STILL, stuck(**ahead))
    assert (alone.kind, alone.sure) == ("not_committed", "possible")
    assert alone.text.endswith("a record there (librdkafka fetches ahead, also while its program stands still).")
    lately = {**ahead, "others_keep_up": True, "committed_ago_ms": 3_000}
    assert "but no later offset of it" in told(STILL, stuck(**lately))[0].text


def test_a_member_that_may_work_on_one_batch_for_so_long() -> None:
    silent: dict[str, Any] = {"fetched_ago_ms": 355_000, **HIDDEN}
    (found,) = told(STILL, stuck(**silent))
    assert (found.kind, found.sure) == ("not_committed", "possible")
    assert found.text.endswith(
        "its last Fetch was 6 min ago: it works on one batch for so long, which its max.poll.interval.ms of 24 h"
        " allows, or its program stands still."
    )
    (found,) = told(STILL, stuck(**silent, others_keep_up=True))
    assert (found.kind, found.sure) == ("stuck", "probable")
    assert STANDS_STILL in found.text
    assert found.text.endswith(HIDES)


@pytest.mark.parametrize(
    ("owned", "data", "severity"),
    [
        ([over(100_000, move("m9", [0, 1])), over(120_000, move("m1", [0]), move("m9", [], [0]))], {}, "sick"),
        (
            [over(100_000, move("m9", [0, 1])), over(120_000, move("m1", [0]), move("m9", [], [0]))],
            {"commits": 3},
            "odd",
        ),
        ([over(120_000, move("m1", [0]))], {}, "odd"),
    ],
    ids=["another program had them", "it commits", "it had them before"],
)
def test_a_member_that_takes_partitions_and_commits_nothing(
    owned: list[EventRecord], data: dict[str, Any], severity: str
) -> None:
    beyond = stuck(**{"fetches": "beyond", "ahead": 15, "commits": 0, **data})
    (found,) = told(STILL, *owned, beyond)
    assert (found.kind, found.as_data()["severity"]) == ("not_committed", severity)
    says = "and has not committed anything since it joined, and m9 (h) had it before: probably another program has this"
    assert (says in found.text) is (severity == "sick")
    assert ("give it a group.id of its own" in str(found.remedy)) is (severity == "sick")
    assert explain(read([*owned, beyond]))[-1].text == found.text
    # Two of one service: the first had all partitions for a moment.
    twin = {**beyond, "client_id": "m9b"}
    (found,) = told(STILL, *owned, twin)
    assert "another program" not in found.text


AGAIN: dict[str, Any] = {"fetches": "again", "offset": 5, "deliveries": 12}
GOT = "It got the records from offset 5 on 12 times"
FAILS = "it probably fails at a record there each time, and reads it again (a poison record)"
INSTALL = (
    "Look in its log for an error about zstd: install this codec for its client (of aiokafka with `pip install"
    " 'aiokafka[zstd]'`, for instance)"
)


def test_a_batch_whose_codec_a_client_lacks_is_no_poison_record() -> None:
    (found,) = told(STILL, stuck(**AGAIN, codec="zstd", codecs_before=["none", "gzip"]))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("stuck", "broken", "probable")
    assert found.text == (
        f"{STANDS}. {GOT}. The batch there is compressed with zstd, and those before are not compressed or compressed"
        " with gzip: its client probably lacks this codec."
    )
    assert str(found.remedy).startswith(INSTALL)
    assert "reset-offsets" not in str(found.remedy)
    (gzip,) = told(STILL, stuck(**AGAIN, codec="gzip", codecs_before=["none"]))
    assert "pip" not in str(gzip.remedy)


def test_a_compressed_batch_before_which_there_is_none_may_be_one_that_a_client_cannot_read() -> None:
    (found,) = told(STILL, stuck(**AGAIN, codec="zstd"))
    assert found.text == f"{STANDS}. {GOT}: {FAILS}, or its client cannot decompress the batch (zstd)."
    assert str(found.remedy).startswith(INSTALL)
    assert POISON in str(found.remedy)


def test_a_codec_that_clients_that_are_alike_may_lack() -> None:
    (found,) = told(STILL, stuck(fetches="unknown", codec="zstd", codecs_before=["none"]))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("stuck", "broken", "probable")
    assert found.text.endswith(
        "while 15 records wait there. Other members have its client id and address, so that its Fetches are not told"
        " apart. The batch there is compressed with zstd, and those before are not compressed: its client probably"
        " lacks this codec."
    )


def test_a_codec_of_a_batch_soon_after_the_committed_offset() -> None:
    silent: dict[str, Any] = {"fetches": "none", "fetched_ago_ms": 355_000, "codec": "zstd", "codecs_before": ["none"]}
    (found,) = told(STILL, stuck(**silent, codec_at=[["t", 0, 9]], software="kafka-python 3.0.12"))
    assert (found.kind, found.sure) == ("stuck", "probable")
    assert found.text.endswith(
        " Its heartbeats go on, and its last Fetch was 6 min ago. The batch of t-0 at offset 9, soon after that, is"
        " compressed with zstd, and those before are not compressed: its client probably lacks this codec."
    )
    assert "(`pip install 'kafka-python[zstd]'`)" in str(found.remedy)


@pytest.mark.parametrize(
    ("client", "software", "how"),
    [
        ("aiokafka-0.14.0", None, "for its client (`pip install 'aiokafka[zstd]'`), or set another"),
        ("c", "kafka-python 3.0.12", "for its client (`pip install 'kafka-python[zstd]'`), or set another"),
        ("c", "librdkafka 2.16", "for its client, or a build of librdkafka that has it, or set another"),
        ("c", "apache-kafka-java 4.4.0", "for its client, or set another"),
    ],
)
def test_a_codec_is_installed_for_the_library_of_a_member(client: str, software: str | None, how: str) -> None:
    assert how in install_codec("zstd", software, Member("m1", client))


def test_a_member_that_does_not_come_back_from_its_poll_lacks_a_codec() -> None:
    data: dict[str, Any] = {
        "joined_ago_ms": 87_000,
        "codec": "zstd",
        "codecs_before": ["none"],
        "software": "kafka-python 3",
    }
    gone = left(**{**data, "codec_at": [["t", 0, 9]]})
    (found,) = told(present(state="Empty", lags={("t", 0): 9}), gone)[1:]
    assert (found.kind, found.sure) == ("slow_poll", "probable")
    assert found.text.endswith(
        " and it has not joined again; the batch of t-0 at offset 9, soon after that, is compressed with zstd, and"
        " those before are not compressed: its client probably lacks this codec, and does not come back from its poll"
        " because of that."
    )
    assert str(found.remedy).endswith("Then restart it. A longer max.poll.interval.ms does not help.")


def test_a_group_without_commits_that_does_not_get_past_a_batch() -> None:
    reads = event(NothingCommitted, 199_000, client="c1", partitions={"t": [0]}, ahead=0, stood_ms=360_000)
    (found,) = told(present(reader(1, partitions=(0, 1))), {**reads, "offset": 5, "deliveries": 12, "codec": "zstd"})
    assert (found.kind, found.as_data()["severity"], found.sure) == ("stuck", "broken", "probable")
    assert found.text == (
        "c1 (h) has had t-0 for 6 min, and the group has no committed offset."
        f" {GOT}: {FAILS}, or its client cannot decompress the batch (zstd)."
    )
    assert POISON in str(found.remedy)


@pytest.mark.parametrize(
    "now",
    [
        present(reader(1, partitions=(0, 1)), committed={("t", 0): 6}, lags={("t", 0): 14}),
        present(reader(1, partitions=(0, 1)), committed={("t", 0): 5}, lags={("t", 0): 0}),
        present(reader(1, partitions=(1,)), reader(2, partitions=(0,)), committed={("t", 0): 5}, lags={("t", 0): 15}),
    ],
    ids=["it has moved", "nothing waits any more", "another member owns it"],
)
def test_what_is_over_is_no_finding(now: Any) -> None:
    assert told(now, stuck()) == []


def test_a_member_that_does_not_get_on_has_no_second_finding_for_its_lag() -> None:
    now = present(reader(1, partitions=(0, 1)), committed={("t", 0): 5}, lags={("t", 0): 4_980, ("t", 1): 20})
    assert [each.kind for each in told(now, stuck())] == ["not_committed"]
    assert [each.kind for each in told(now)] == ["hot_partition"]


def test_an_offset_that_stands_still_for_longer_is_told_once() -> None:
    (said,) = explain(read([stuck(100_000), stuck(150_000, stood_ms=720_000)]))
    assert (said.time, "for 12 min" in said.text) == (100_000, True)


def test_several_partitions_are_told_together() -> None:
    (said,) = explain(read([stuck(positions=[["t", 0, 5], ["t", 1, 9]])]))
    assert (
        "the committed offsets of t-0 to t-1 have not moved for 6 min (t-0 at 5, t-1 at 9), while 15 records"
        in said.text
    )


def reads(at: int = 199_000) -> EventRecord:
    return event(NothingCommitted, at, client="c1", partitions={"t": [0, 1]}, ahead=40, stood_ms=360_000)


def test_a_member_that_never_fetches_some_of_its_partitions() -> None:
    place: dict[str, Any] = {
        "partitions": {"t": [0]},
        "records": 40,
        "stood_ms": 15_000,
        "fetches": "none",
        "fetches_others": True,
    }
    nothing = event(NothingFetched, 180_000, client="c1", **place)
    others = present(reader(1, partitions=(0, 1)), committed={("t", 1): 9})
    (found,) = told(others, nothing)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("nothing_fetched", "sick", "probable")
    assert found.text == (
        "c1 (h) has had t-0 for 15 s, and has fetched nothing of it since it joined, though it fetches other"
        " partitions, while 40 records wait there and no offset of it is committed: it has probably paused this part of"
        " its assignment, or has no offset to start at there (auto.offset.reset=none, or error)."
    )
    assert told(present(reader(1, partitions=(0, 1)), committed={("t", 0): 1, ("t", 1): 9}), nothing) == []


def test_a_member_that_has_not_fetched_once_is_a_finding_while_that_lasts() -> None:
    event_of = event(NothingFetched, 180_000, client="c1", partitions={"t": [0, 1]}, records=40, stood_ms=15_000)
    now = present(reader(1, partitions=(0, 1)))
    (found,) = told(now, event_of)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("nothing_fetched", "broken", "probable")
    assert found.text.startswith(
        "c1 (h) has had t-0 to t-1 for 15 s, and has not sent a single Fetch since it joined, while 40 records wait"
        " there and the group has no committed offset: it probably has no offset to start at (auto.offset.reset=none"
    )
    (said,) = explain(read([event_of]))
    assert (said.text, said.remedy) == (found.text, found.remedy)
    assert told(now, {**event_of, "time": 120_000}) == [], "it would have been reported again"
    assert told(now, event_of, reads()) == told(now, reads())
    assert told(present(reader(1, partitions=(0, 1)), committed={("t", 0): 4}), event_of) == []


@pytest.mark.parametrize("is_incremental", [True, False])
def test_a_member_that_has_not_taken_its_assignment(is_incremental: bool) -> None:
    data: dict[str, Any] = {"fetches": "untaken", "is_incremental": is_incremental}
    nothing = event(NothingFetched, 180_000, client="c1", partitions={"t": [0]}, records=40, stood_ms=15_000, **data)
    why = "its program has probably not taken its assignment: its rebalance listener fails, or does not return,"
    why += " or nothing polls this consumer"
    why += ", or calls assign() though its assignments are incremental." if is_incremental else "."
    (found,) = told(present(reader(1, partitions=(0, 1))), nothing)
    assert (found.kind, found.text) == (
        "nothing_fetched",
        "c1 (h) has had t-0 for 15 s, and has neither fetched a record of it nor asked for committed offsets since it"
        f" joined, while 40 records wait there: {why}",
    )
    assert ("incremental_assign() instead of assign()" in str(found.remedy)) is is_incremental
    (found,) = told(STILL, stuck(**data))
    assert (found.kind, found.sure) == ("stuck", "probable")
    assert found.text == f"{STANDS}. It has neither fetched it nor asked for what is committed: {why}"


def test_a_group_whose_commits_are_all_refused_is_not_one_that_never_commits() -> None:
    error = "OFFSET_METADATA_TOO_LARGE"
    refused = [
        event(CommitsRefused, at, client="c1", error=error, commits=at // 1_000, sent=1) for at in (3_000, 30_000)
    ]
    (found,) = told(present(reader(1, partitions=(0, 1))), *refused, reads())
    assert (found.kind, found.as_data()["severity"], found.sure) == ("nothing_committed", "sick", "certain")
    assert found.text == (
        "c1 (h) has read t-0 to t-1 for 6 min (40 records fetched), and the group has no committed offset: 30 commits"
        " of c1 (h) in a row were refused (OFFSET_METADATA_TOO_LARGE): the metadata that it commits with an offset is"
        " longer than the broker allows (offset.metadata.max.bytes, 4,096 by default)."
    )
    assert "Commit shorter metadata" in str(found.remedy)
    *_, said = explain(read([*refused, reads()]))
    assert (said.text, said.remedy) == (found.text, found.remedy)


TOO_LARGE: dict[str, Any] = {"error": "OFFSET_METADATA_TOO_LARGE", "sent": 1}


@pytest.mark.parametrize("data", [{"fetches": "beyond", "ahead": 15}, {"fetches": "again", "offset": 5}])
def test_offsets_that_stand_still_because_commits_are_refused(data: dict[str, Any]) -> None:
    refused = event(CommitsRefused, 198_000, client="c1", commits=30, **TOO_LARGE)
    (found,) = told(STILL, refused, stuck(committed_ago_ms=360_000, **data))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("not_committed", "sick", "certain")
    assert found.text == (
        f"{STANDS}: 30 commits of c1 (h) in a row were refused (OFFSET_METADATA_TOO_LARGE): the metadata that it"
        " commits with an offset is longer than the broker allows (offset.metadata.max.bytes, 4,096 by default)."
    )
    assert "Commit shorter metadata" in str(found.remedy)
    *_, said = explain(read([refused, stuck(**data)]))
    assert (said.text, said.remedy) == (found.text, found.remedy)


def test_commits_that_are_refused_in_a_row_are_a_finding_at_once() -> None:
    refused = [event(CommitsRefused, at, client="c1", commits=at // 6_600, **TOO_LARGE) for at in (19_800, 198_000)]
    (found,) = told(STILL, *refused)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("not_committed", "sick", "certain")
    assert found.text.startswith("30 commits of c1 (h) in a row were refused (OFFSET_METADATA_TOO_LARGE)")
    assert (found.remedy or "").startswith("Commit shorter metadata")
    (said,) = explain(read(refused))
    assert (said.text, said.remedy) == (found.text, found.remedy)
    passes = [{**each, "error": "ILLEGAL_GENERATION"} for each in refused]
    assert told(STILL, *passes) == [], "it rejoins"


OUTDATED: dict[str, Any] = {"error": "ILLEGAL_GENERATION", "sent": 1, "transactional_id": "x", "is_member": True}


def test_a_member_that_commits_in_transactions_for_the_generation_before_is_a_finding_at_once() -> None:
    refused = event(CommitsRefused, 198_000, client="c1", commits=3, **{"generation": 3, **OUTDATED})
    (found,) = told(STILL, refused)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("not_committed", "sick", "certain")
    assert found.text == (
        "3 commits of c1 (h) in a row were refused (ILLEGAL_GENERATION), in transactions of x: the last one was for"
        " generation 1, though it is a member of generation 3: its program probably keeps what"
        " consumer_group_metadata() (groupMetadata()) has given it before a rebalance."
    )
    assert (found.remedy or "").startswith("Take it anew before each send_offsets_to_transaction()")


@pytest.mark.parametrize("data", [{"is_member": False}, {"transactional_id": None, "is_member": None}, {"sent": 3}])
def test_commits_of_other_clients_for_an_assignment_that_is_over_pass(data: dict[str, Any]) -> None:
    refused = event(CommitsRefused, 198_000, client="c1", commits=3, **{"generation": 3, **OUTDATED, **data})
    assert told(STILL, refused) == []
    (said,) = explain(read([refused]))
    assert "an assignment that is over" in str(said.remedy)


def test_offsets_that_stand_still_because_commits_are_refused_are_one_finding_of_a_member() -> None:
    refused = event(CommitsRefused, 198_000, client="c1", commits=30, **TOO_LARGE)
    both = present(reader(1, partitions=(0, 1)), lags={("t", 0): 15, ("t", 1): 4}, committed={("t", 0): 5, ("t", 1): 7})
    stuck_too = {**stuck(199_000, fetches="beyond", ahead=4, records=4), "positions": [["t", 1, 7]]}
    (found,) = told(both, refused, stuck(fetches="beyond", ahead=15), stuck_too)
    assert "committed offsets of t-0 to t-1 have not moved" in found.text
    assert "19 records wait there: 30 commits of c1 (h)" in found.text


def test_refused_commits_have_figures_of_now_and_one_remedy() -> None:
    known = stuck(100_000, fetches="beyond", ahead=15, records=9)
    first = event(CommitsRefused, 60_000, client="c1", commits=30, **TOO_LARGE)
    last = event(CommitsRefused, 198_000, client="c1", commits=300, **TOO_LARGE)
    (found,) = told(STILL, first, known, last)
    assert "has stood at 5 for 8 min, while 15 records wait there: 300 commits of c1 (h)" in found.text
    said = explain(read([first, known, last]))
    assert [each.remedy for each in said] == [None, found.remedy]


@pytest.mark.parametrize(
    ("member_id", "found"),
    [
        ("m1", stuck(fetches="beyond", ahead=15, committed_ago_ms=500)),
        ("m1", stuck(300_000, fetches="beyond", ahead=15, stood_ms=60_000)),
        ("m2", stuck(fetches="beyond", ahead=15)),
    ],
    ids=["a later commit was accepted", "long before", "another member"],
)
def test_refused_commits_that_do_not_explain_offsets_that_stand_still(member_id: str, found: EventRecord) -> None:
    refused = event(CommitsRefused, 198_000, client="c1", member_id=member_id, commits=3, **TOO_LARGE)
    *_, said = explain(read([refused, found]))
    assert "TOO_LARGE" not in said.text


def test_a_group_that_reads_and_never_commits() -> None:
    (found,) = told(present(reader(1, partitions=(0, 1))), reads())
    assert (found.kind, found.as_data()["severity"], found.sure) == ("nothing_committed", "odd", "certain")
    assert found.text == (
        "c1 (h) has read t-0 to t-1 for 6 min (40 records fetched), and the group has no committed offset: it reads"
        " without committing or has not read enough for a commit yet."
    )
    assert "with latest it skips what was written meanwhile, with earliest it reads everything again" in str(
        found.remedy
    )
    (said,) = explain(read([reads(100_000), reads()]))
    assert (said.text, said.remedy) == (found.text, found.remedy)


def test_a_member_that_commits_some_of_its_partitions_only() -> None:
    some = {**reads(), "partitions": {"t": [0]}, "only_committed": {"t": [1]}}
    here = present(reader(1, partitions=(0, 1)), committed={("t", 1): 6})
    (found,) = told(here, some)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("nothing_committed", "sick", "probable")
    assert found.text == (
        "c1 (h) has read t-0 for 6 min (40 records fetched), and has committed only t-1: its program probably commits"
        " some of the partitions that it reads, such as the last one of each batch."
    )
    assert "Commit all partitions of a batch, each with the offset of its last record plus one" in str(found.remedy)
    (said,) = explain(read([some]))
    assert (said.text, said.remedy) == (found.text, found.remedy)
    (found,) = told(here, {**some, "software": RDKAFKA})
    assert (found.as_data()["severity"], found.sure) == ("odd", "possible")
    assert "or its program has not been given the records yet (librdkafka fetches ahead" in found.text
    assert told(replace(here, committed={("t", 0): 3, ("t", 1): 6}), some) == []


def test_a_group_without_commits_of_members_that_are_alike() -> None:
    (found,) = told(present(reader(1, partitions=(0, 1))), {**reads(), "written": 50})
    assert (found.kind, found.as_data()["severity"], found.sure) == ("nothing_committed", "odd", "possible")
    assert found.text == (
        "c1 (h) has had t-0 to t-1 for 6 min (50 records were written there meanwhile), and the group has no committed"
        " offset. Other members have its client id and address, so that its Fetches are not told apart: it reads"
        " without committing, has not read enough for a commit yet, or does not get on."
    )
    assert "client.id for each program" in (found.remedy or "")


def test_librdkafka_reads_records_that_its_program_may_not_have_been_given() -> None:
    (found,) = told(present(reader(1, partitions=(0, 1))), {**reads(), "software": RDKAFKA})
    assert (found.as_data()["severity"], found.sure) == ("odd", "probable")
    assert found.text.endswith(
        "it reads without committing, has not read enough for a commit yet, or its program has not been given the"
        " records yet (librdkafka fetches ahead: a consume() that waits for a full batch, or for its turn)."
    )
    assert "Give consume() a timeout." in str(found.remedy)


def test_a_group_whose_program_commits_to_another_group_in_transactions() -> None:
    elsewhere = {**reads(), "other_group": "g-old", "transactional_id": "bills"}
    (found,) = told(present(reader(1, partitions=(0, 1))), elsewhere)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("nothing_committed", "sick", "probable")
    assert found.text == (
        "c1 (h) has read t-0 to t-1 for 6 min (40 records fetched), and the group has no committed offset: its program"
        " probably commits to the group g-old, which has no member, in transactions of bills: these come from the same"
        " address, and have offsets of the same topic."
    )
    assert "sendOffsetsToTransaction" in str(found.remedy)


def test_a_group_that_has_committed_since_then_is_no_finding() -> None:
    assert told(present(reader(1, partitions=(0, 1)), committed={("t", 0): 6}), reads()) == []


def test_a_member_that_commits_each_record_is_a_finding_while_that_lasts() -> None:
    def often(at: int, **data: Any) -> EventRecord:
        figures: dict[str, Any] = {"commits": 15_000, "records": 15_100, "took_ms": 300_000, **data}
        return event(CommitsOften, at, client="c1", **figures)

    now = present(reader(1, partitions=(0, 1)), committed={("t", 0): 6})
    (found,) = told(now, often(150_000), often(199_000))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("commits_often", "odd", "certain")
    assert found.text == (
        "c1 (h) commits nearly each record by itself: 15,000 commits for 15,100 records within 5 min (50 a second)."
    )
    assert "Commit by time or by number" in str(found.remedy)
    (said,) = explain(read([often(150_000), often(199_000)]))
    assert (said.text, said.remedy, said.time) == (found.text, found.remedy, 150_000)
    assert told(now, often(100_000, took_ms=30_000)) == [], "it would have been reported again"
    assert told(present(reader(2, partitions=(0, 1)), committed={("t", 0): 6}), often(199_000)) == []
    (found,) = told(now, often(199_000, transactional_id="bills"))
    assert str(found.remedy).startswith("Put more records into each transaction")


def test_a_member_that_commits_the_offset_of_the_last_record_is_a_finding_while_that_lasts() -> None:
    def last(at: int, **data: Any) -> EventRecord:
        figures: dict[str, Any] = {"partitions": {"t": [0, 1]}, "times": 8, "took_ms": 300_000, **data}
        return event(CommitsLastRecord, at, client="c1", **figures)

    now = present(reader(1, partitions=(0, 1)), lags={("t", 0): 1, ("t", 1): 1}, committed={("t", 0): 6, ("t", 1): 5})
    (found,) = told(now, last(150_000), last(199_000))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("commits_last_record", "odd", "probable")
    assert found.text.startswith(
        "c1 (h) probably commits the offset of the last record that it has read in place of the next one: 8 times"
        " within 5 min it had fetched all records of t-0 to t-1, and then committed all but the last one"
    )
    assert str(found.remedy).startswith("Commit the offset of the last record plus one, or call commit() without")
    (said,) = explain(read([last(150_000), last(199_000)]))
    assert (said.text, said.remedy, said.time) == (found.text, found.remedy, 150_000)
    assert told(now, last(100_000, took_ms=30_000)) == [], "it would have been reported again"
    assert told(present(reader(2, partitions=(0, 1)), committed={("t", 0): 6}), last(199_000)) == []
    waits = stuck(positions=[["t", 0, 6], ["t", 1, 5]], records=2, fetches="beyond", commits=20, ahead=2)
    assert [each.kind for each in told(now, waits)] == ["not_committed"]
    assert [each.kind for each in told(now, last(199_000), waits)] == ["commits_last_record"], "it stands once"


def test_a_member_whose_next_records_were_deleted_may_have_no_reset() -> None:
    (found,) = told(STILL, stuck(fetches="none", is_deleted=True))
    assert "a member that has auto.offset.reset=none does not go on, either" in found.text


def beyond(at: int = 199_000, offset: int = 30, **data: Any) -> EventRecord:
    return event(CommitsBeyondEnd, at, client="c1", beyond=[["t", 0, offset, 20]], **data)


def test_commits_after_the_end_of_the_log_name_the_member() -> None:
    (said,) = explain(read([beyond(100_000), beyond(101_000, 31)]))
    assert said.text == ("c1 (h), member m1, committed t-0 at 31, and its log ends at 20: there is no such record.")
    assert "-t t:0 --to-offset 20 --execute" in str(said.remedy)
    now = present(reader(1, partitions=(0, 1)), outside={("t", 0): (30, 0, 20)})
    (found,) = told(now, beyond())
    assert "its log ends at 20: there is no such record; c1 (h), member m1, committed it at " in found.text


@pytest.mark.parametrize(
    "by",
    [
        beyond(member_id="", principal="User:ada"),
        event(
            OffsetsAltered,
            199_000,
            client="c1",
            principal="User:ada",
            offsets=1,
            changes=[{"topic": "t", "partition": 0, "before": 9, "after": 30}],
        ),
    ],
    ids=["after the end", "before the end"],
)
def test_commits_after_the_end_of_the_log_name_the_client_that_is_not_a_member(by: EventRecord) -> None:
    now = present(state="Empty", outside={("t", 0): (30, 0, 20)})
    (found,) = told(now, by)
    assert "c1 (h" in found.text
    assert "User:ada" in found.text
    assert "which is not a member, committed it at" in found.text


def test_an_offset_that_was_in_the_log_when_it_was_committed_names_no_client() -> None:
    now = present(reader(1, partitions=(0, 1)), outside={("t", 0): (30, 0, 20)})
    (found,) = told(now, beyond(offset=29))
    assert found.text == "The committed offset of t-0 is 30, and its log ends at 20: there is no such record."


def rewound(at: int, partition: int = 0) -> EventRecord:
    return event(MemberRewound, at, client="c1", topic="t", partition=partition, log_start=0, offset=10)


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([rewound(100_000)], "t-0 (0, and 10 was committed): it fetched from there"),
        ([over(60_000), rewound(100_000)], "it fetched from there (a seek)"),
        (
            [over(99_000), rewound(100_000), rewound(100_010, 1)],
            "t-0 (0, and 10 was committed), t-1 (0, and 10 was committed) after a rebalance: it probably seeks",
        ),
        (
            [over(99_000), rewound(100_000), over(150_000), rewound(150_010)],
            "t-0 (0, and 10 was committed) after each of 2 rebalances: its rebalance listener probably seeks",
        ),
    ],
    ids=["a seek", "long after a rebalance", "after one", "after each"],
)
def test_a_member_that_goes_back_to_the_beginning(records: list[EventRecord], text: str) -> None:
    (said,) = [each for each in explain(read(records)) if "went back" in each.text]
    assert said.text.startswith("c1 (h) went back to the beginning of ")
    assert text in said.text
    assert "group.id of its own" in str(said.remedy)


def test_commits_after_a_rewind_do_not_come_out_of_order() -> None:
    changes = [{"topic": "t", "partition": 0, "before": 10, "after": 3}]
    back = event(CommitsWentBack, 101_000, client="c1", changes=changes)
    said = explain(read([over(99_000), rewound(100_000), back]))[-1]
    assert said.text == "c1 (h) committed t-0 back from 10 to 3: it had gone back before (a seek)."


def test_a_member_that_goes_back_to_a_time_after_each_rebalance_is_a_finding() -> None:
    def back(at: int) -> EventRecord:
        return {**rewound(at), "log_start": 0, "position": 4}

    records = [over(99_000), back(100_000), over(150_000), back(150_010)]
    (said,) = [each for each in explain(read(records)) if "went back" in each.text]
    assert said.text == (
        "c1 (h) went back to an earlier time of t-0 (4, and 10 was committed) after each of 2 rebalances: it looked up"
        " the offset of a time, and fetched from there: its rebalance listener, or its start, probably seeks there at"
        " each assignment."
    )
    now = present(reader(1, partitions=(0, 1)), committed={("t", 0): 12})
    (found,) = told(now, *records)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("goes_back", "odd", "probable")
    assert (found.text, found.remedy) == (said.text, said.remedy)
    assert told(now, *records[:2]) == [], "once may be on purpose"
    assert told(present(), *records) == [], "it is no member any more"


def test_a_member_that_begins_before_the_committed_offsets_at_each_assignment() -> None:
    def back(at: int, committed: int, partition: int = 0) -> EventRecord:
        return {**rewound(at, partition), "position": 4, "offset": committed, "is_kept": True}

    records = [over(99_000), back(100_000, 10), over(150_000), back(150_010, 20), back(150_020, 9, 1)]
    (said,) = [each for each in explain(read(records)) if "began before" in each.text]
    assert said.text == (
        "c1 (h) began before the committed offsets of t-0 (4, and 20 was committed), t-1 (4, and 9 was committed) after"
        " each of 2 rebalances, so that, the last time, it reads 21 records again: it probably seeks when it gets"
        " partitions, to offsets that it keeps elsewhere."
    )
    now = present(reader(1, partitions=(0, 1)), committed={("t", 0): 22})
    (found,) = told(now, *records)
    assert (found.kind, found.text, found.remedy) == ("goes_back", said.text, said.remedy)
    assert told(now, *records[:2]) == [], "once may be on purpose"


def test_a_member_that_begins_after_the_committed_offsets() -> None:
    jumps = [
        event(
            MemberSkipped,
            100_000 + partition,
            client="c1",
            topic="t",
            partition=partition,
            log_start=520,
            offset=517,
            position=1_900,
            records=1_380,
            is_kept=True,
        )
        for partition in (0, 1)
    ]
    (found,) = told(present(reader(1, partitions=(0, 1)), committed={("t", 0): 1_905}), *jumps)
    assert (found.kind, found.as_data()["severity"]) == ("skips_records", "sick")
    assert found.text == (
        "c1 (h) began after the committed offsets of t-0 (1,900, and 517 was committed), t-1 (1,900, and 517 was"
        " committed), so that the group does not read 2,760 records, which came while it had no members: it probably"
        " seeks when it gets partitions, to offsets that it keeps elsewhere."
    )
    assert "`barnabas groups reset-offsets g -t t:0,1 --to-offset 517 --execute`" in str(found.remedy)
    (said,) = explain(read(jumps))
    assert (said.text, said.remedy) == (found.text, found.remedy)


def test_a_member_that_jumps_to_the_end_again_and_again_is_a_finding() -> None:
    def jump(at: int, times: int) -> EventRecord:
        figures = {"log_start": 0, "offset": 5, "position": 140, "fetched": 40, "times": times, "records": 100 * times}
        return event(MemberSkipped, at, client="c1", topic="t", partition=0, **figures)

    now = present(reader(1, partitions=(0, 1)), committed={("t", 0): 140})
    (found,) = told(now, jump(50_000, 1), jump(150_000, 2))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("skips_records", "sick", "probable")
    assert found.text == (
        "c1 (h) jumped to the end of a partition that it was reading, 3 times: over 300 records or more, which it has"
        " not fetched (the last time 40 to 139 of t-0). It probably seeks to the end when it is behind."
    )
    (said,) = explain(read([jump(50_000, 1), jump(150_000, 2)]))
    assert (said.text, said.remedy, said.time) == (found.text, found.remedy, 50_000)
    assert told(now, jump(50_000, 1)) == []


def test_a_member_that_begins_at_the_end() -> None:
    skipped = [
        event(MemberSkipped, 100_000 + partition, topic="t", partition=partition, log_start=0, offset=5, position=20)
        for partition in (0, 1)
    ]
    (told,) = explain(read(skipped[:1]))
    assert told.text == (
        "c (h) asked for the end of a partition and fetched from there: t-0 at 20, so that it probably does not read 5"
        " to 19. The committed offset was 5, and it had just got it: it probably seeks to the end when it gets"
        " partitions."
    )
    assert "`barnabas groups reset-offsets g -t t:0 --to-offset 5 --execute`" in str(told.remedy)
    (both,) = explain(read(skipped))
    assert "t-0 at 20, so that it probably does not read 5 to 19; t-1 at 20" in both.text
    assert "`barnabas groups reset-offsets g -t t:0,1 --to-offset 5 --execute`" in str(both.remedy)


def test_a_new_partition_that_is_read_from_its_end_on() -> None:
    skipped = event(MemberSkipped, 100_000, topic="t", partition=2, log_start=0, position=7)
    (told,) = explain(read([skipped]))
    assert told.text == (
        "c (h) asked for the end of a partition and fetched from there: t-2 at 7, so that it probably does not read 0"
        " to 6. The partition was added to the topic, and the group had no committed offset there:"
        " auto.offset.reset=latest probably applied."
    )
    assert "set auto.offset.reset=earliest" in str(told.remedy)


def test_first_records_that_came_while_no_member_read_their_partitions() -> None:
    skipped = [
        event(
            MemberSkipped,
            100_000 + number,
            client="c1",
            topic="t",
            partition=number,
            log_start=3,
            position=18,
            away_ms=30_300,
        )
        for number in (1, 2)
    ]
    text = (
        "c1 (h) asked for the ends of partitions and fetched from there: t-1 at 18, so that it probably does not read 3"
        " to 17; t-2 at 18, so that it probably does not read 3 to 17. The group has read the partitions before, until"
        " 30.3 s earlier, and has committed nothing there: auto.offset.reset=latest probably applied to records that"
        " have come since."
    )
    (said,) = explain(read(skipped))
    assert said.text == text
    assert "set auto.offset.reset=earliest" in str(said.remedy)
    assert "`barnabas groups reset-offsets g -t t:1,2 --to-offset 3 --execute`" in str(said.remedy)
    (found,) = told(present(reader(1, partitions=(0, 1))), *skipped)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("skips_records", "sick", "probable")
    assert (found.text, found.remedy) == (said.text, said.remedy)


def test_an_offset_that_is_one_too_small() -> None:
    """Of each partition the last record waits, and is never consumed."""
    positions = [["t", 0, 19], ["t", 1, 29]]
    (said,) = explain(read([stuck(fetches="beyond", ahead=2, records=2, positions=positions)]))
    assert "or it commits the offset of the last record that it has read" in said.text
    assert "one more than that of the last one" in str(said.remedy)
    assert "--to-offset" not in str(said.remedy)
    (again,) = explain(read([stuck(fetches="beyond", ahead=2, records=2, positions=positions, commits=50)]))
    assert again.text.endswith(
        "and has committed 50 times since it joined: it probably commits the offset of the last record that it has read"
        " in place of the next one, or it does not finish these records."
    )
    assert str(again.remedy).startswith("Commit the offset of the last record plus one")


def test_offsets_that_are_one_too_small_are_one_finding_of_a_member() -> None:
    """Each partition is reported when its offset has stood for long enough."""
    places = ("t", 0), ("t", 1)
    here = present(reader(1, partitions=(0, 1)), committed=dict.fromkeys(places, 5), lags=dict.fromkeys(places, 1))
    one, two = (
        stuck(198_000 + number, fetches="beyond", ahead=1, records=1, positions=[["t", number, 5]], commits=8)
        for number in (0, 1)
    )
    (found,) = told(here, one, two)
    assert (found.kind, found.as_data()["severity"], found.sure) == ("not_committed", "odd", "probable")
    assert "t-0 to t-1 have not moved for 6 min (t-0 at 5, t-1 at 5), while 2 records wait there" in found.text
    assert "it probably commits the offset of the last record" in found.text
    (said,) = explain(read([one, two]))
    assert (said.text, said.remedy) == (found.text, found.remedy)
    (alone,) = told(here, one)
    assert (alone.sure, "it perhaps commits the offset" in alone.text) == ("possible", True)


def test_a_prefetched_backlog_is_no_standstill() -> None:
    """Librdkafka fetches what a slow program works through for minutes."""
    (found,) = told(STILL, stuck(fetched_ago_ms=300_000, software=RDKAFKA, rebalance_timeout_ms=300_000))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("not_committed", "odd", "possible")
    assert "or it works through what it has fetched before" in found.text


def test_a_line_that_is_made_of_several_events_says_until_when_they_were_recorded() -> None:
    (line,) = explain(read([stuck(100_000, stood_ms=300_000), stuck(400_000, stood_ms=600_000)]))
    assert line.time == 100_000
    assert "has stood at 5 for 10 min" in line.text
    assert line.details == [f"This was recorded twice until {clock(400_000)}."]
    (alone,) = explain(read([stuck(100_000)]))
    assert alone.details == []


def test_lag_where_offsets_stand_still_has_one_cause_also_after_another_member_has_come() -> None:
    stands = stuck(198_000, fetches="beyond", ahead=900, records=900, positions=[["t", 0, 5], ["t", 1, 9]])
    figures: dict[str, Any] = {"consumed": 300, "written": 900, "lag_before": 100, "lag": 900, "took_ms": 200_000}
    grows = event(LagGrows, 199_000, **figures, led=3, committed_in=3, members=1, idle=0, owned=3)
    here = present(
        reader(1, partitions=(0, 2)),
        reader(2, partitions=(1,)),
        committed={("t", 0): 5, ("t", 1): 9, ("t", 2): 900},
        lags={("t", 0): 450, ("t", 1): 450, ("t", 2): 1},
    )
    assert [each.kind for each in told(here, stands, grows)] == ["not_committed"]
    moved = replace(here, committed={**here.committed, ("t", 1): 10})
    assert "lag_grows" in [each.kind for each in told(moved, stands, grows)]


def test_lag_that_grows_where_a_member_hangs_is_told_with_that() -> None:
    """Lag that also grows elsewhere has an explanation of its own."""
    hangs = stuck(fetches="beyond", ahead=15, committed_ago_ms=3_000, lag_of_others=1)
    (behind,) = behind_of(["t", 0, 5], stood_ms=200_000)
    figures: dict[str, Any] = {"consumed": 300, "written": 900, "lag_before": 100, "lag": 900, "took_ms": 200_000}
    grows = event(LagGrows, 200_000, **figures, led=2, committed_in=2, members=1, idle=0, owned=2, behind=[behind])
    (said,) = explain(read([hangs, grows]))
    assert said.details == [
        "Meanwhile 1.5 records/s are committed and 4.5 records/s are written: the lag grew from 100 to 900 within 3"
        " min."
    ]
    elsewhere = {**grows, "behind": [{**behind, "positions": [["t", 0, 5], ["t", 1, 9]]}]}
    assert len(explain(read([hangs, elsewhere]))) == 2


def unreached(*numbers: int, at: int = 199_000, **data: Any) -> EventRecord:
    """The members of these numbers, which have a partition each, do not reach a broker."""
    behind = [
        {
            "member_id": f"m{number}",
            "client_id": f"c{number}",
            "host": "/h",
            "instance_id": None,
            "lag": 10,
            "positions": [["t", number - 1, 5]],
            "stood_ms": 300_000,
        }
        for number in numbers
    ]
    return event(BrokerNotReached, at, **{"broker": 3, "address": "b3:9092", "behind": behind, **data})


APART = present(
    reader(1, partitions=(0, 2)),
    reader(2, partitions=(1, 3)),
    committed={("t", 0): 5, ("t", 1): 5, ("t", 2): 90, ("t", 3): 90},
    lags={("t", 0): 20, ("t", 1): 22, ("t", 2): 1},
)


def test_members_that_do_not_reach_a_broker() -> None:
    (found,) = told(APART, unreached(1, 2))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("broker_not_reached", "broken", "probable")
    assert found.text == (
        "c1 (h) and c2 (h) have fetched nothing of the 2 partitions that broker 3 (b3:9092) leads (t-0 to t-1) for 5"
        " min, while 42 records wait there and other partitions are fetched. Broker 3 has seen neither a Fetch nor a"
        " connection of them: they probably do not reach it."
    )
    assert found.remedy == (
        "Look whether b3:9092 can be reached from the hosts of these members: a firewall, a security group, a network"
        " policy, the name in advertised.listeners. `barnabas topics list -b b3:9092` there shows whether it can. Their"
        " logs have the error of the connection."
    )
    (said,) = explain(read([unreached(1, 2)]))
    assert said.remedy == found.remedy
    assert said.text.endswith("of them: they probably do not reach it.")


def test_one_partition_of_a_broker_that_is_not_reached_may_be_paused() -> None:
    (found,) = told(APART, unreached(1))
    assert (found.kind, found.as_data()["severity"], found.sure) == ("broker_not_reached", "sick", "possible")
    assert "nothing of t-0, which broker 3 (b3:9092) leads, for 5 min, while 20 records wait" in found.text
    assert found.text.endswith("it probably does not reach it, or it has paused this partition.")


def test_a_broker_that_is_reached_again_is_no_finding() -> None:
    moved = replace(APART, committed={**APART.committed, ("t", 0): 6})
    (found,) = told(moved, unreached(1, 2))
    assert found.text.startswith("c2 (h) has fetched nothing of t-1,")
    assert told(replace(moved, committed={**moved.committed, ("t", 1): 6}), unreached(1, 2)) == []


def test_what_was_said_before_of_partitions_of_a_broker_that_is_not_reached_does_not_count() -> None:
    paused = stuck(190_000, committed_ago_ms=1_000)
    assert [each.kind for each in told(APART, paused, unreached(1, 2))] == ["broker_not_reached"]


def both_behind(**data: Any) -> list[dict[str, Any]]:
    return [{**each, "lag": 21, "stood_ms": 150_000, **data} for each in unreached(1, 2)["behind"]]


def test_a_lag_that_grows_only_where_offsets_of_several_members_stand_needs_no_more_members() -> None:
    figures: dict[str, Any] = {"consumed": 300, "written": 342, "lag_before": 0, "lag": 42, "took_ms": 200_000}
    spread: dict[str, Any] = {"led": 4, "committed_in": 4, "members": 2, "idle": 0, "owned": 4}
    grows = event(LagGrows, 199_500, **figures, **spread, behind=both_behind())
    (said,) = explain(read([grows]))
    assert said.text.endswith(
        " Nearly all of it, 42 records, waits for c1 (h) and c2 (h): the committed offsets of t-0 to t-1 have not moved"
        " for 2 min, while the rest of the group gets on."
    )
    assert str(said.remedy).startswith("Look why c1 (h) and c2 (h) do not read these partitions, or do not commit.")
    (found,) = told(APART, grows)
    assert (found.kind, found.remedy) == ("lag_grows", said.remedy)
    rest = replace(APART, lags={**APART.lags, ("t", 3): 12})
    (found,) = told(rest, {**grows, "lag": 55})
    assert " Now 42 of the 55 records wait for c1 (h) and c2 (h)" in found.text
    moved = replace(APART, committed={**APART.committed, ("t", 0): 6})
    (found,) = told(moved, grows)
    assert "Start more members" in str(found.remedy)
    (alone,) = explain(read([unreached(1, 2), grows]))
    assert alone.details[0].startswith("Meanwhile 1.5 records/s are committed")
    one, two = stuck(), stuck(198_000, positions=[["t", 1, 5]], member_id="m2", client_id="c2")
    assert [each.text[:8] for each in explain(read([one, two, grows]))] == ["c1 (h) i", "c2 (h) i"]


def test_more_members_are_no_remedy_while_something_else_is_wrong() -> None:
    figures: dict[str, Any] = {"consumed": 300, "written": 900, "lag_before": 0, "lag": 43, "took_ms": 200_000}
    grows = event(LagGrows, 199_500, **figures, led=4, committed_in=4, members=2, idle=0, owned=4)
    refused = event(CommitsRefused, 198_000, error="OFFSET_METADATA_TOO_LARGE", commits=30, sent=1)
    growing = next(each for each in told(APART, refused, grows) if each.kind == "lag_grows")
    assert growing.remedy == (
        "Mend first what else is wrong with the group, which takes time from its members. Then look whether the lag"
        " still grows."
    )


def test_a_broker_that_is_not_reached_says_why_the_lag_grows() -> None:
    figures: dict[str, Any] = {"consumed": 300, "written": 342, "lag_before": 0, "lag": 42, "took_ms": 200_000}
    grows = event(LagGrows, 199_500, **figures, led=4, committed_in=4, members=2, idle=0, owned=4)
    assert [each.kind for each in told(APART, unreached(1, 2), grows)] == ["broker_not_reached"]
