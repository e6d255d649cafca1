"""Each anomaly in the smallest history that shows it, and its nearest neighbours that are correct."""

from collections.abc import Sequence

import pytest

from tests.checker.checker import check
from tests.checker.history import History, Kind, Operation, Outcome, Poll, Send

OK, FAIL, UNKNOWN = Outcome.OK, Outcome.FAIL, Outcome.UNKNOWN
X, Y = "x", "y"


def sends(history: History, values: str, process: str = "writer", first: int = 0, key: str = X) -> None:
    """Send each letter, acknowledged at the next offset."""
    for offset, value in enumerate(values, first):
        history.do(process, Kind.SEND, [Send(key, value, offset)])


def poll(
    history: History,
    values: str,
    process: str = "reader",
    first: int = 0,
    outcome: Outcome = OK,
    rebalanced: Sequence[str] = (),
) -> Operation:
    """Receive each letter from contiguous offsets of X."""
    return history.do(process, Kind.POLL, [Poll({X: list(enumerate(values, first))})], outcome, rebalanced=rebalanced)


def found(history: History) -> list[str]:
    return sorted(check(history).cases)


def test_a_correct_history() -> None:
    history = History()
    sends(history, "abc")
    history.do("reader", Kind.ASSIGN, keys=[X])
    poll(history, "ab")
    poll(history, "c", first=2)
    history.do("end", Kind.SCAN, [Poll({X: [(0, "a"), (1, "b"), (2, "c")], Y: []})])
    assert found(history) == []
    assert check(history).lines() == []


def test_an_empty_history() -> None:
    assert found(History()) == []


def test_a_value_is_sent_once() -> None:
    history = History()
    sends(history, "aa")
    with pytest.raises(ValueError, match="sent 'a' twice to x"):
        check(history)


def test_an_operation_ends_once() -> None:
    history = History()
    operation = history.do("writer", Kind.SEND, [Send(X, "a", 0)])
    with pytest.raises(ValueError, match="completed already"):
        history.complete(operation, OK)


class TestInconsistentOffsets:
    def test_two_polls_disagree(self) -> None:
        history = History()
        sends(history, "a")
        history.do("another writer", Kind.SEND, [Send(X, "b")], UNKNOWN)
        poll(history, "a")
        poll(history, "b", process="other")
        report = check(history)
        assert sorted(report.cases) == ["inconsistent-offsets"]
        (case,) = report.bad["inconsistent-offsets"]
        assert {record.value for record in case.records} == {"a", "b"}
        assert len(case.operations) == 2

    def test_a_poll_and_an_acknowledgement_disagree(self) -> None:
        history = History()
        sends(history, "ab")
        poll(history, "ba")
        assert set(found(history)) == {"inconsistent-offsets", "duplicate"}

    def test_an_offset_of_a_transaction_without_effect_says_nothing(self) -> None:
        history = History()
        history.do("writer", Kind.TXN, [Send(X, "a", 0)], UNKNOWN)
        sends(history, "b")
        poll(history, "b")
        assert found(history) == []


class TestDuplicate:
    def test_a_value_at_two_offsets(self) -> None:
        history = History()
        sends(history, "a")
        poll(history, "aa")
        assert found(history) == ["duplicate"]

    def test_a_record_below_two_places_is_not_lost_twice(self) -> None:
        history = History()
        sends(history, "a")
        history.do("writer", Kind.SEND, [Send(X, "b", 1)])
        poll(history, "a")
        poll(history, "a", process="other", first=2)
        assert found(history) == ["G0", "duplicate", "unseen"]


def test_unwritten() -> None:
    history = History()
    poll(history, "a")
    assert found(history) == ["unwritten"]


class TestAbortedRead:
    def test_a_failed_transaction_is_read(self) -> None:
        history = History()
        history.do("writer", Kind.TXN, [Send(X, "a", 0)], FAIL)
        poll(history, "a")
        (case,) = check(history).bad["G1a"]
        assert [operation.process for operation in case.operations] == ["writer", "reader"]

    def test_an_unknown_one_may_be_read(self) -> None:
        history = History()
        history.do("writer", Kind.TXN, [Send(X, "a", 0)], UNKNOWN)
        poll(history, "a")
        assert found(history) == []

    def test_one_without_completion_may_be_read(self) -> None:
        history = History()
        history.invoke("writer", Kind.SEND, [Send(X, "a")])
        poll(history, "a")
        assert found(history) == []


def test_precommitted_read() -> None:
    history = History()
    history.do("both", Kind.TXN, [Send(X, "a", 0), Poll({X: [(0, "a")]})])
    assert found(history) == ["precommitted-read"]


class TestLostWrite:
    def test_a_later_record_was_read(self) -> None:
        history = History()
        sends(history, "abc")
        poll(history, "a")
        poll(history, "c", process="other", first=2)
        report = check(history)
        assert sorted(report.cases) == ["lost-write", "unseen"]
        (case,) = report.bad["lost-write"]
        assert case.records == ((1, "b"), (2, "c"))

    def test_the_end_may_be_read_late(self) -> None:
        history = History()
        sends(history, "abc")
        poll(history, "ab")
        assert found(history) == ["unseen"]

    def test_a_rejected_record_is_not_lost(self) -> None:
        history = History()
        sends(history, "a")
        history.do("writer", Kind.SEND, [Send(X, "b")], FAIL)
        sends(history, "c", first=1)
        poll(history, "ac")
        assert found(history) == []

    def test_a_part_of_a_transaction_of_unknown_outcome_was_read(self) -> None:
        history = History()
        history.do("writer", Kind.TXN, [Send(X, "a", 0), Send(X, "b", 1)], UNKNOWN)
        sends(history, "c", first=2)
        poll(history, "a")
        poll(history, "c", process="other", first=2)
        assert found(history) == ["lost-write"]

    def test_the_last_record_disappears_after_it_was_read(self) -> None:
        history = History()
        sends(history, "ab")
        poll(history, "ab")
        history.do("end", Kind.SCAN, [Poll({X: [(0, "a")]})])
        assert found(history) == ["lost-write"]

    def test_the_last_record_disappears_before_it_was_read(self) -> None:
        history = History()
        sends(history, "ab")
        history.do("end", Kind.SCAN, [Poll({X: [(0, "a")]})])
        assert found(history) == ["lost-write", "unseen"]

    def test_a_whole_read_may_miss_what_is_sent_during_it(self) -> None:
        history = History()
        sends(history, "a")
        scan = history.invoke("end", Kind.SCAN)
        sends(history, "b", first=1)
        history.complete(scan, OK, [Poll({X: [(0, "a")]})])
        assert found(history) == ["unseen"]


class TestPolls:
    def test_skip_and_its_evidence(self) -> None:
        history = History()
        sends(history, "abcd")
        poll(history, "abcd", process="other")
        first, second = poll(history, "a"), poll(history, "d", first=3)
        report = check(history)
        assert sorted(report.cases) == ["poll-skip"]
        (case,) = report.bad["poll-skip"]
        assert case.records == ((0, "a"), (3, "d"), (1, "b"), (2, "c"))
        assert case.operations == (first, second)

    def test_a_gap_without_known_records_is_no_skip(self) -> None:
        history = History()
        sends(history, "a")
        sends(history, "b", first=5)
        poll(history, "a")
        poll(history, "b", first=5)
        assert found(history) == []

    def test_nonmonotonic(self) -> None:
        history = History()
        sends(history, "ab")
        poll(history, "ab")
        poll(history, "b", first=1)
        assert found(history) == ["nonmonotonic-poll"]

    @pytest.mark.parametrize("kind", [Kind.ASSIGN, Kind.SUBSCRIBE])
    def test_another_assignment_forgets_the_position(self, kind: Kind) -> None:
        history = History()
        sends(history, "ab")
        poll(history, "ab")
        history.do("reader", kind, keys=[Y])
        poll(history, "ab")
        assert found(history) == []

    def test_a_kept_key_keeps_its_position(self) -> None:
        history = History()
        sends(history, "ab")
        poll(history, "ab")
        history.do("reader", Kind.ASSIGN, keys=[X, Y])
        poll(history, "ab")
        assert found(history) == ["nonmonotonic-poll"]

    def test_a_rebalance_forgets_the_position(self) -> None:
        history = History()
        sends(history, "ab")
        poll(history, "ab")
        poll(history, "ba", rebalanced=[X])
        poll(history, "ab")
        assert "nonmonotonic-poll" not in found(history)
        assert "int-nonmonotonic-poll" not in found(history)

    def test_a_crash_forgets_the_position(self) -> None:
        history = History()
        sends(history, "ab")
        poll(history, "ab")
        history.do("reader", Kind.CRASH)
        poll(history, "ab")
        assert found(history) == []

    def test_a_failed_transaction_goes_back(self) -> None:
        history = History()
        sends(history, "ab")
        history.do("reader", Kind.TXN, [Poll({X: [(0, "a")]})], FAIL)
        history.do("reader", Kind.TXN, [Poll({X: [(0, "a")]})])
        history.do("reader", Kind.TXN, [Poll({X: [(1, "b")]})], FAIL)
        history.do("reader", Kind.TXN, [Poll({X: [(0, "a")]})])
        assert found(history) == ["nonmonotonic-poll"]

    def test_inside_of_an_operation(self) -> None:
        history = History()
        sends(history, "abc")
        poll(history, "abc", process="other")
        history.do("reader", Kind.POLL, [Poll({X: [(0, "a"), (2, "c")]})])
        assert found(history) == ["int-poll-skip"]
        history.do("third", Kind.TXN, [Poll({X: [(1, "b")]}), Poll({X: [(1, "b")]})])
        assert found(history) == ["int-nonmonotonic-poll", "int-poll-skip"]


class TestSends:
    def test_nonmonotonic(self) -> None:
        history = History()
        history.do("writer", Kind.SEND, [Send(X, "b", 1)])
        history.do("writer", Kind.SEND, [Send(X, "a", 0)])
        poll(history, "ab")
        assert found(history) == ["nonmonotonic-send"]

    def test_a_poll_finds_the_offset(self) -> None:
        history = History()
        history.do("writer", Kind.SEND, [Send(X, "b")], UNKNOWN)
        history.do("writer", Kind.SEND, [Send(X, "a")])
        poll(history, "ab")
        assert found(history) == ["nonmonotonic-send"]

    def test_several_under_way(self) -> None:
        history = History()
        first, second = (history.invoke("writer", Kind.SEND, [Send(X, value)]) for value in "ab")
        history.complete(second, OK, [Send(X, "b", 1)])
        history.complete(first, OK, [Send(X, "a", 0)])
        poll(history, "ab")
        assert found(history) == []

    def test_a_crash_ends_the_order(self) -> None:
        history = History()
        history.do("writer", Kind.SEND, [Send(X, "b")], UNKNOWN)
        history.do("writer", Kind.CRASH)
        history.do("writer", Kind.SEND, [Send(X, "a", 0)])
        poll(history, "ab")
        assert found(history) == []

    def test_inside_of_an_operation(self) -> None:
        history = History()
        history.do("writer", Kind.TXN, [Send(X, "a", 0), Send(X, "c", 2), Send(X, "b", 1)])
        sends(history, "d", first=3)
        poll(history, "abcd")
        report = check(history)
        assert set(report.bad) == {"int-nonmonotonic-send"}
        assert set(report.cases) == {"int-nonmonotonic-send", "int-send-skip"}

    def test_other_records_between_two_are_allowed(self) -> None:
        history = History()
        history.do("writer", Kind.TXN, [Send(X, "a", 0), Send(X, "c", 2)])
        history.do("other", Kind.SEND, [Send(X, "b", 1)])
        poll(history, "abc")
        report = check(history)
        assert sorted(report.cases) == ["G0", "int-send-skip"]
        assert not report.bad


class TestCycles:
    def test_writes(self) -> None:
        history = History()
        history.do("one", Kind.TXN, [Send(X, "a", 0), Send(Y, "b", 1)])
        history.do("two", Kind.TXN, [Send(X, "c", 1), Send(Y, "d", 0)])
        history.do("end", Kind.SCAN, [Poll({X: [(0, "a"), (1, "c")], Y: [(0, "d"), (1, "b")]})])
        report = check(history)
        assert sorted(report.cases) == ["G0"]
        assert not report.bad

    def test_reads(self) -> None:
        history = History()
        one = history.do("one", Kind.TXN, [Send(X, "a", 0), Poll({Y: [(0, "b")]})])
        two = history.do("two", Kind.TXN, [Send(Y, "b", 0), Poll({X: [(0, "a")]})])
        report = check(history)
        assert set(report.bad) == {"G1c"}
        (case,) = report.cases["G1c"]
        assert set(case.operations) == {one, two}

    def test_a_read_and_a_write(self) -> None:
        history = History()
        one = history.do("one", Kind.TXN, [Send(X, "a", 1), Send(Y, "b", 0)])
        two = history.do("two", Kind.TXN, [Send(X, "c", 0), Poll({Y: [(0, "b")]})])
        history.do("end", Kind.SCAN, [Poll({X: [(0, "c"), (1, "a")], Y: [(0, "b")]})])
        report = check(history)
        assert sorted(report.cases) == ["G1c-ww"]
        assert not report.bad
        assert report.cases["G1c-ww"][0].operations == (one, two)

    def test_a_chain_is_no_cycle(self) -> None:
        history = History()
        history.do("one", Kind.TXN, [Send(X, "a", 0)])
        history.do("two", Kind.TXN, [Poll({X: [(0, "a")]}), Send(Y, "b", 0)])
        history.do("end", Kind.SCAN, [Poll({X: [(0, "a")], Y: [(0, "b")]})])
        assert found(history) == []


class TestLostCommit:
    def test_the_committed_offset_goes_back(self) -> None:
        history = History()
        history.do("reader", Kind.COMMIT, offsets={X: 5})
        history.do("other", Kind.COMMITTED, offsets={X: 4})
        assert found(history) == ["lost-commit"]

    def test_a_commit_while_it_is_asked_for(self) -> None:
        history = History()
        history.do("reader", Kind.COMMIT, offsets={X: 4})
        asked = history.invoke("other", Kind.COMMITTED)
        history.do("reader", Kind.COMMIT, offsets={X: 5})
        history.complete(asked, OK, offsets={X: 4})
        assert found(history) == []

    def test_an_unknown_commit_promises_nothing(self) -> None:
        history = History()
        history.do("reader", Kind.COMMIT, outcome=UNKNOWN, offsets={X: 5})
        history.do("other", Kind.COMMITTED, offsets={X: 0})
        assert found(history) == []

    def test_a_commit_of_a_smaller_offset_is_accepted(self) -> None:
        history = History()
        history.do("reader", Kind.COMMIT, offsets={X: 5})
        history.do("fenced", Kind.COMMIT, offsets={X: 4})
        assert found(history) == ["lost-commit"]

    def test_commits_at_the_same_time(self) -> None:
        history = History()
        late = history.invoke("other", Kind.COMMIT)
        history.do("reader", Kind.COMMIT, offsets={X: 5})
        history.complete(late, OK, offsets={X: 4})
        assert found(history) == []

    def test_each_group_has_an_offset_of_its_own(self) -> None:
        history = History()
        history.do("reader", Kind.COMMIT, offsets={X: 5}, group="one")
        history.do("other", Kind.COMMIT, offsets={X: 4}, group="two")
        history.do("other", Kind.COMMITTED, offsets={X: 4}, group="two")
        assert found(history) == []


class Member:
    """A member of the group "g"."""

    def __init__(self, history: History, name: str) -> None:
        self._history, self._name = history, name

    def gains(self, *keys: str) -> None:
        self._history.do(self._name, Kind.GAIN, keys=keys, group="g")

    def loses(self, *keys: str) -> None:
        self._history.do(self._name, Kind.LOSE, keys=keys, group="g")

    def reads(self, values: str, first: int = 0) -> None:
        steps = [Poll({X: list(enumerate(values, first))})]
        self._history.do(self._name, Kind.POLL, steps, rebalanced=[X], group="g")

    def commits(self, offset: int, outcome: Outcome = OK) -> None:
        self._history.do(self._name, Kind.COMMIT, outcome=outcome, offsets={X: offset}, group="g")

    def dies(self) -> None:
        self._history.do(self._name, Kind.CRASH, group="g")


def settle(history: History, *keys: str) -> None:
    history.do("settled", Kind.SETTLE, keys=keys, group="g")


class TestGroups:
    def test_a_correct_one(self) -> None:
        """A member loses a key and dies; another one reads again what was not committed; the keys are shared."""
        history = History()
        sends(history, "abc")
        one, two = Member(history, "one"), Member(history, "two")
        one.gains(X, Y)
        one.reads("ab")
        one.commits(1)
        one.loses(X)
        two.gains(X)
        two.reads("bc", first=1)
        two.commits(3)
        settle(history, X, Y)
        one.dies()
        two.gains(Y)
        settle(history, X, Y)
        assert found(history) == []

    def test_a_record_that_no_member_has_read(self) -> None:
        history = History()
        sends(history, "abc")
        poll(history, "abc", process="of another group")
        one = Member(history, "one")
        one.gains(X)
        one.reads("a")
        one.commits(1)
        assert found(history) == []
        one.reads("c", first=2)
        one.commits(3)
        report = check(history)
        assert sorted(report.cases) == ["unconsumed"]
        (case,) = report.bad["unconsumed"]
        assert case.records == ((1, "b"),)

    def test_a_commit_without_answer_counts_when_it_is_found(self) -> None:
        history = History()
        sends(history, "ab")
        poll(history, "ab", process="of another group")
        one = Member(history, "one")
        one.reads("a")
        one.commits(2, UNKNOWN)
        assert found(history) == []
        history.do("two", Kind.COMMITTED, offsets={X: 2}, group="g")
        assert found(history) == ["unconsumed"]

    def test_two_members_have_a_key_and_commit(self) -> None:
        history = History()
        one, two = Member(history, "one"), Member(history, "two")
        one.gains(X)
        one.commits(1)
        two.gains(X)
        two.commits(2)
        assert found(history) == []
        one.commits(3)
        report = check(history)
        assert sorted(report.cases) == ["two-owners"]
        (case,) = report.bad["two-owners"]
        assert [operation.process for operation in case.operations] == ["one", "one", "two", "two"]

    def test_a_member_gets_a_key_after_another_one_that_has_gone_and_before_one_that_stays(self) -> None:
        history = History()
        one, two, three = Member(history, "one"), Member(history, "two"), Member(history, "three")
        one.gains(X)
        two.gains(X)
        two.commits(1)
        two.loses(X)
        three.gains(X)
        three.commits(2)
        one.commits(3)
        (first, second) = check(history).bad["two-owners"]
        assert [case.operations[-1].process for case in (first, second)] == ["two", "three"]

    def test_a_member_that_was_removed_believes_to_have_a_key(self) -> None:
        history = History()
        one, two = Member(history, "one"), Member(history, "two")
        one.gains(X)
        one.commits(1)
        two.gains(X)
        two.commits(2)
        one.commits(3, UNKNOWN)
        two.commits(3)
        one.loses(X)
        assert found(history) == []

    def test_a_member_gets_a_key_again(self) -> None:
        history = History()
        one, two = Member(history, "one"), Member(history, "two")
        for offset in (1, 3):
            one.gains(X)
            one.commits(offset)
            one.loses(X)
            two.gains(X)
            two.commits(offset + 1)
            two.dies()
        assert found(history) == []

    def test_a_callback_that_has_not_returned_gives_nothing(self) -> None:
        history = History()
        one, two = Member(history, "one"), Member(history, "two")
        one.gains(X)
        gain = history.invoke("two", Kind.GAIN, keys=[X], group="g")
        one.commits(1)
        one.loses(X)
        history.complete(gain, OK)
        two.commits(2)
        assert found(history) == []

    def test_a_key_without_a_member_in_the_end(self) -> None:
        history = History()
        one = Member(history, "one")
        one.gains(X, Y)
        one.loses(Y)
        settle(history, X, Y)
        (case,) = check(history).bad["unsettled"]
        assert case.text == "y: in g it has no member"

    def test_a_key_with_two_members_in_the_end(self) -> None:
        history = History()
        Member(history, "one").gains(X)
        Member(history, "two").gains(X)
        settle(history, X)
        assert found(history) == ["unsettled"]

    def test_a_key_whose_member_is_gone(self) -> None:
        history = History()
        one = Member(history, "one")
        one.gains(X)
        one.dies()
        settle(history, X)
        assert found(history) == ["unsettled"]

    def test_a_member_without_a_key_in_the_end(self) -> None:
        history = History()
        Member(history, "one").gains(X)
        operation = history.invoke("settled", Kind.SETTLE, keys=[X], group="g")
        history.complete(operation, UNKNOWN, error="two has no key")
        (case,) = check(history).bad["unsettled"]
        assert case.text == "g: two has no key"
