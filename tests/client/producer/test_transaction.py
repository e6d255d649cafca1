"""The state machine of a producer's transactions: with scripted answers, and with a coordinator that loses anything."""

import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.transactions import transaction as broker
from barnabas_client.errors import (
    CommitFailedError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    error_for,
)
from barnabas_client.producer.transaction import (
    Ask,
    DropBatches,
    Effect,
    Reject,
    Resolve,
    TransactionMachine,
    TransactionState,
    UseEpoch,
)
from barnabas_client.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from barnabas_protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from barnabas_protocol.schema import Request, Response
from tests.client.producer.coordinator import Transactions

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP = ConsumerGroupMetadata("g", 3, "member", None)
FEATURES = ApiVersionsRequest(client_software_name="test", client_software_version="1")
Injected = Callable[[Request], Response | KafkaError | None]


class World:
    """A machine, the coordinator that answers it, and what has come of the calls.

    Args:
        version: the finalized ``transaction.version``.
        inject: an answer instead of the coordinator's, or why there is none; None leaves it to the coordinator.
    """

    def __init__(self, version: int, inject: Injected = lambda request: None) -> None:
        self.cluster = Transactions(version)
        self.inject = inject
        self.machine = TransactionMachine("x", 60_000, Backoff(0.1, 1.0), Backoff(0.02, 1.0), FEATURES)
        self.now = 100.0
        self.asked: list[Request] = []
        self.asks: list[Ask] = []
        self.outcomes: dict[str, KafkaError | None] = {}
        self.epochs: list[tuple[int, int]] = []
        self.dropped: list[DropBatches] = []
        self._in_flight: Ask | None = None

    def start(self) -> "World":
        self.run(self.machine.initialize("start", self.now))
        self.settle()
        assert self.machine.state is TransactionState.READY
        return self

    def begin(self, *partitions: TopicPartition) -> "World":
        self.machine.begin(self.now)
        for tp in partitions:
            self.run(self.machine.add(tp, self.now))
        self.settle()
        return self

    def write(self, tp: TopicPartition) -> ErrorCode:
        """What the sender does when it may."""
        assert self.machine.may_send(tp)
        mine = (self.machine.producer_id, self.machine.producer_epoch)
        return self.cluster.write("x", *mine, *tp, implicit=self.machine.implicit)

    def offsets(self, topic_ids: Mapping[str, bytes] | None = None) -> None:
        offsets = {P0: OffsetAndMetadata(7)}
        self.run(self.machine.send_offsets("offsets", offsets, GROUP, self.now, topic_ids))
        self.settle()

    def end(self, *, committed: bool, gap: bool = False) -> KafkaError | None:
        call = self.machine.commit if committed else self.machine.abort
        self.outcomes.pop("end", None)
        self.run(call("end", self.now))
        self.run(self.machine.settled(self.now, gap=gap))
        self.settle()
        return self.outcomes["end"]

    def run(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Ask):
                assert self._in_flight is None, "one request at a time"
                self._in_flight = effect
            elif isinstance(effect, Resolve):
                self.outcomes[effect.ticket] = None
            elif isinstance(effect, Reject):
                self.outcomes[effect.ticket] = effect.error
            elif isinstance(effect, UseEpoch):
                self.epochs.append((effect.producer_id, effect.producer_epoch))
            elif isinstance(effect, DropBatches):
                self.dropped.append(effect)

    def settle(self) -> None:
        """Answer all requests, and let the time of all retries pass."""
        for _ in range(400):
            if self._in_flight is not None:
                self.answer()
            elif (at := self.machine.next_deadline()) is not None:
                assert at > self.now
                self.now = at
                self.run(self.machine.tick(self.now))
            else:
                return
        raise AssertionError(f"it never ends: {self.asked[-5:]}")

    def answer(self) -> None:
        ask, self._in_flight = self._in_flight, None
        assert ask is not None
        self.asked.append(ask.request)
        self.asks.append(ask)
        answer = self.inject(ask.request) or self.carry_out(ask)
        if isinstance(answer, KafkaError):
            self.run(self.machine.unanswered(answer, self.now))
        else:
            self.run(self.machine.answered(answer, self.now))

    def carry_out(self, ask: Ask) -> Response:
        request, newest = ask.request, 99 if ask.at_most is None else ask.at_most
        if isinstance(request, FindCoordinatorRequest):
            (key,) = request.coordinator_keys
            return FindCoordinatorResponse(coordinators=[Coordinator(key=key, node_id=1, host="h", port=1)])
        assert ask.coordinator is not None
        if isinstance(request, ApiVersionsRequest):
            level = FinalizedFeatureKey(name="transaction.version", max_version_level=self.cluster.version)
            return ApiVersionsResponse(error_code=0, api_keys=[], finalized_features=[level])
        if isinstance(request, InitProducerIdRequest):
            return self.cluster.init(request)
        if isinstance(request, AddPartitionsToTxnRequest):
            assert ask.at_most == 3
            return self.cluster.add(request)
        if isinstance(request, AddOffsetsToTxnRequest):
            return self.cluster.add_offsets(request)
        if isinstance(request, TxnOffsetCommitRequest):
            return self.cluster.commit_offsets(request, min(6, newest))
        if isinstance(request, EndTxnRequest):
            return self.cluster.end_txn(request, min(5, newest))
        assert isinstance(request, DescribeTransactionsRequest)
        return self.cluster.describe(request)

    def kinds(self, *, since: int = 0) -> list[str]:
        return [type(one).__name__.removesuffix("Request") for one in self.asked[since:]]


def once(kind: type[Request], answer: Response | KafkaError) -> Injected:
    """Answer the first request of a kind with this."""
    left = [answer]
    return lambda request: left.pop() if left and isinstance(request, kind) else None


def lost(kind: type[Request]) -> Injected:
    return once(kind, KafkaConnectionError("broke off"))


@pytest.fixture(params=[0, 2])
def version(request: pytest.FixtureRequest) -> int:
    made: int = request.param
    return made


# What is asked, in which order.


def test_a_classic_transaction() -> None:
    world = World(0).start()
    assert world.kinds() == ["FindCoordinator", "ApiVersions", "InitProducerId"]
    world.begin(P0, P1)
    assert world.write(P0) == world.write(P1) == ErrorCode.NONE
    world.offsets()
    assert world.end(committed=True) is None
    assert world.kinds(since=3) == [
        "AddPartitionsToTxn",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "FindCoordinator",
        "TxnOffsetCommit",
        "EndTxn",
    ]
    (ended,) = world.cluster.ended
    assert ended.committed and ended.partitions == {P0, P1} and ended.offsets == ((("g", "t", 0), (7, "")),)
    assert world.epochs == [(4001, 0)]
    assert [ask.at_most for ask in world.asks[-2:]] == [4, 4]


def test_a_transaction_of_version_2() -> None:
    """Leaders and the group coordinator add partitions, and each transaction has an epoch of its own (KIP-890)."""
    world = World(2).start().begin(P0)
    assert world.write(P0) == ErrorCode.NONE
    world.offsets()
    assert world.end(committed=True) is None
    assert world.kinds(since=3) == ["FindCoordinator", "TxnOffsetCommit", "EndTxn"]
    assert world.cluster.ended[0].committed
    assert world.epochs == [(4001, 0), (4001, 1)]


def test_nothing_is_asked_for_a_transaction_without_records(version: int) -> None:
    world = World(version).start()
    for committed in (True, False):
        world.begin()
        assert world.end(committed=committed) is None
    assert world.kinds(since=3) == []


def test_partitions_are_sent_to_when_they_are_added() -> None:
    world = World(0).start()
    world.machine.begin(world.now)
    world.run(world.machine.add(P0, world.now))
    assert not world.machine.may_send(P0)
    world.settle()
    assert world.machine.may_send(P0) and not world.machine.may_send(P1)
    world.end(committed=True)
    world.begin()
    assert not world.machine.may_send(P0), "it belongs to the transaction before"


def test_the_end_waits_for_the_batches(version: int) -> None:
    world = World(version).start().begin(P0)
    world.write(P0)
    world.run(world.machine.commit("end", world.now))
    world.settle()
    assert EndTxnRequest not in map(type, world.asked) and "end" not in world.outcomes
    world.run(world.machine.settled(world.now, gap=False))
    world.settle()
    assert world.outcomes["end"] is None


# Aborts.


def test_an_abort_without_a_gap_keeps_the_classic_epoch() -> None:
    world = World(0).start().begin(P0)
    world.write(P0)
    assert world.end(committed=False) is None
    assert world.epochs == [(4001, 0)] and not world.cluster.ended[0].committed
    assert not world.dropped[0].maybe_written, "those may still be written: they are sent until there is an answer"


def test_an_abort_with_a_gap_gets_a_new_classic_epoch() -> None:
    """KIP-360: the next sequence number of the partition is not known."""
    world = World(0).start().begin(P0)
    world.write(P0)
    assert world.end(committed=False, gap=True) is None
    assert world.kinds()[-2:] == ["EndTxn", "InitProducerId"]
    assert world.epochs == [(4001, 0), (4001, 1)]
    world.begin(P0)
    assert world.write(P0) == ErrorCode.NONE and world.end(committed=True) is None


def test_an_abort_of_version_2_gets_its_epoch_from_the_end() -> None:
    world = World(2).start().begin(P0)
    world.write(P0)
    assert world.end(committed=False, gap=True) is None
    assert world.kinds()[-1] == "EndTxn" and world.epochs == [(4001, 0), (4001, 1)]
    assert world.dropped[0].maybe_written, "the new epoch refuses what arrives later"


def test_an_abort_before_a_partition_was_added() -> None:
    """An AddPartitionsToTxn that got no answer may have begun the transaction, and may still do so."""
    world = World(0, lost(AddPartitionsToTxnRequest)).start()
    world.machine.begin(world.now)
    world.run(world.machine.add(P0, world.now))
    world.answer()  # lost
    assert world.end(committed=False) is None
    assert world.machine.state is TransactionState.READY
    assert world.kinds()[-2:] == ["EndTxn", "InitProducerId"], "a late request must not belong to the next transaction"


def test_offsets_that_wait_are_dropped_by_an_abort(version: int) -> None:
    world = World(version, lost(FindCoordinatorRequest)).start().begin()
    world.run(world.machine.send_offsets("offsets", {P0: OffsetAndMetadata(1)}, GROUP, world.now))
    world.run(world.machine.abort("end", world.now))
    assert world.outcomes["offsets"] is not None
    world.run(world.machine.settled(world.now, gap=False))
    world.settle()
    assert world.outcomes["end"] is None and not any(one.offsets for one in world.cluster.ended)


def test_offsets_are_committed_by_the_ids_of_topics_if_all_are_known() -> None:
    world = World(2).start().begin()
    world.offsets({"t": b"t" * 16})
    (request,) = (one for one in world.asked if isinstance(one, TxnOffsetCommitRequest))
    assert (request.topics[0].topic_id, world.asks[-1].at_most) == (b"t" * 16, None)
    world.offsets()
    assert world.asks[-1].at_most == 5
    assert world.end(committed=True) is None
    assert world.cluster.ended[0].offsets == ((("g", "t", 0), (7, "")),)


def test_offsets_of_a_topic_that_was_created_again_are_refused() -> None:
    def refuse(request: Request) -> Response | None:
        if not isinstance(request, TxnOffsetCommitRequest):
            return None
        return world.cluster.commit_offsets(request, 6, ErrorCode.UNKNOWN_TOPIC_ID)

    world = World(2, refuse).start().begin()
    world.offsets({"t": b"t" * 16})
    refused = world.outcomes["offsets"]
    assert isinstance(refused, CommitFailedError) and "was deleted" in str(refused)
    assert world.end(committed=False) is None


# Errors that are retried.


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
def test_what_is_retried(version: int, code: ErrorCode) -> None:
    refused = [
        InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1),
        AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code),
        EndTxnResponse(throttle_time_ms=0, error_code=code),
    ]

    def inject(request: Request) -> Response | None:
        for at, answer in enumerate(refused):
            if type(answer).__name__.removesuffix("Response") == type(request).__name__.removesuffix("Request"):
                return refused.pop(at)
        return None

    world = World(version, inject).start().begin(P0)
    world.write(P0)
    world.offsets()
    assert world.end(committed=True) is None
    assert world.outcomes == {"start": None, "offsets": None, "end": None}
    if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        at = world.kinds().index("EndTxn")
        assert world.kinds()[at : at + 3] == ["EndTxn", "FindCoordinator", "EndTxn"]


def test_the_pauses_of_concurrent_transactions_are_short_and_grow() -> None:
    """The markers of the transaction before are written within milliseconds, but perhaps they are not."""
    refused = EndTxnResponse(throttle_time_ms=0, error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
    times: list[float] = []

    def inject(request: Request) -> Response | None:
        if isinstance(request, EndTxnRequest):
            times.append(world.now)
        return refused if isinstance(request, EndTxnRequest) and len(times) < 9 else None

    world = World(2, inject).start().begin(P0)
    world.write(P0)
    assert world.end(committed=True) is None
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(times)]
    assert pauses == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]


def test_a_commit_whose_answer_is_lost_is_asked_for_again(version: int) -> None:
    world = World(version).start().begin(P0)
    world.write(P0)
    answers = [KafkaConnectionError("broke off")]

    def inject(request: Request) -> KafkaError | None:
        if isinstance(request, EndTxnRequest) and answers:
            world.cluster.end_txn(request, 5 if version else 4)  # carried out
            return answers.pop()
        return None

    world.inject = inject
    assert world.end(committed=True) is None
    assert [one.committed for one in world.cluster.ended] == [True]


# Abortable errors.


def test_a_batch_that_failed(version: int) -> None:
    world = World(version).start().begin(P0)
    world.write(P0)
    cause = error_for(ErrorCode.MESSAGE_TOO_LARGE, "send")
    world.run(world.machine.batch_failed(cause, world.now))
    for call in (world.machine.check_send, lambda: world.machine.commit("no", world.now)):
        with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE") as raised:
            call()
        assert raised.value.__cause__ is cause
    assert world.end(committed=False) is None
    assert world.epochs[-1] == (4001, 1), "a gap"
    world.begin(P0)
    assert world.write(P0) == ErrorCode.NONE and world.end(committed=True) is None


def test_a_batch_that_fails_during_the_commit(version: int) -> None:
    world = World(version).start().begin(P0)
    world.write(P0)
    world.run(world.machine.commit("end", world.now))
    world.run(world.machine.batch_failed(error_for(ErrorCode.REQUEST_TIMED_OUT, "send"), world.now))
    assert isinstance(world.outcomes["end"], TransactionAbortableError)
    assert world.end(committed=False) is None
    assert [one.committed for one in world.cluster.ended] == [False]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError),
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError),
        (ErrorCode.FENCED_INSTANCE_ID, CommitFailedError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, KafkaError),
        (ErrorCode.TRANSACTION_ABORTABLE, KafkaError),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, KafkaError),
    ],
)
def test_offsets_that_are_refused(version: int, code: ErrorCode, kind: type[KafkaError]) -> None:
    world = World(version).start().begin(P0)

    def inject(request: Request) -> Response | None:
        if isinstance(request, TxnOffsetCommitRequest):
            return world.cluster.commit_offsets(request, 5, code)
        return None

    world.inject = inject
    world.write(P0)
    world.offsets()
    assert isinstance(world.outcomes["offsets"], kind)
    assert world.machine.state is TransactionState.ABORTABLE_ERROR
    assert world.end(committed=False) is None


def test_a_forgotten_transactional_id_gets_a_new_producer_id() -> None:
    """The coordinator has dropped it after ``transactional.id.expiration.ms``: there is nothing to end (KIP-360)."""
    world = World(0).start()
    world.cluster.ids.clear()
    world.begin(P0)
    assert world.machine.state is TransactionState.ABORTABLE_ERROR
    assert world.end(committed=False) is None
    assert "EndTxn" not in world.kinds() and world.epochs[-1] == (4002, 0)


# Fatal errors.


def take_over(world: World) -> None:
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)
    while world.cluster.init(request).error_code:
        pass


def test_fencing_says_who_has_taken_over(version: int) -> None:
    world = World(version).start().begin(P0)
    world.write(P0)
    take_over(world)
    failure = world.end(committed=True)
    assert isinstance(failure, ProducerFencedError)
    assert (failure.producer_epoch, failure.current_epoch) == (0, 2)
    assert "the coordinator has epoch 2 of producer id 4001" in str(failure)
    assert "another producer with this transactional id has taken over" in str(failure)
    assert world.dropped[-1].maybe_written
    for call in (world.machine.begin, lambda now: world.machine.commit("no", now)):
        with pytest.raises(ProducerFencedError):
            call(world.now)


def test_fencing_after_the_timeout_names_the_timeout(version: int) -> None:
    world = World(version).start().begin(P0)
    world.write(P0)
    take_over(world)
    world.now += 61
    failure = world.end(committed=True)
    assert "open for 61.0 s, longer than transaction_timeout_ms (60000 ms)" in str(failure)


def test_fencing_when_the_coordinator_cannot_say_more(version: int) -> None:
    world = World(version).start().begin(P0)
    world.write(P0)
    take_over(world)
    world.inject = lost(DescribeTransactionsRequest)
    failure = world.end(committed=True)
    assert isinstance(failure, ProducerFencedError) and failure.current_epoch is None


def test_a_commit_that_may_have_been_carried_out_before_the_fencing(version: int) -> None:
    world = World(version).start().begin(P0)
    world.write(P0)

    def inject(request: Request) -> KafkaError | None:
        if isinstance(request, EndTxnRequest):
            take_over(world)
            world.inject = lambda request: None
            return KafkaConnectionError("broke off")
        return None

    world.inject = inject
    failure = world.end(committed=True)
    assert isinstance(failure, ProducerFencedError) and "is not known" in failure.__notes__[0]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_start_that_is_refused(code: ErrorCode) -> None:
    refused = InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    world = World(2, once(InitProducerIdRequest, refused))
    world.run(world.machine.initialize("start", world.now))
    world.settle()
    failure = world.outcomes["start"]
    assert failure is not None and failure.code == code
    assert world.machine.state is TransactionState.FATAL_ERROR


# Calls in the wrong state.


def test_calls_in_the_wrong_state(version: int) -> None:
    world = World(version).start()
    machine, now = world.machine, world.now
    for call in (
        machine.check_send,
        lambda: machine.commit("no", now),
        lambda: machine.abort("no", now),
        lambda: machine.send_offsets("no", {}, GROUP, now),
    ):
        with pytest.raises(IllegalStateError, match=r"is ready\. To do: begin a transaction first"):
            call()
    world.begin(P0)
    with pytest.raises(IllegalStateError, match="commit or abort the transaction first"):
        machine.begin(now)
    world.run(machine.commit("end", now))
    with pytest.raises(IllegalStateError, match="await commit_transaction"):
        machine.check_send()
    with pytest.raises(IllegalStateError, match="await commit_transaction"):
        machine.commit("twice", now)


@pytest.mark.parametrize("committed", [True, False])
def test_a_caller_that_stopped_waiting_may_call_again(version: int, committed: bool) -> None:
    world = World(version).start().begin(P0)
    world.write(P0)
    call: Callable[[Any, float], list[Effect]] = world.machine.commit if committed else world.machine.abort
    world.run(call("first", world.now))
    world.machine.abandon("first")
    world.run(call("second", world.now))
    world.machine.abandon("second")
    world.run(world.machine.settled(world.now, gap=False))
    world.settle()
    assert world.outcomes == {"start": None} and world.machine.state is TransactionState.READY
    world.run(call("third", world.now))
    assert world.outcomes["third"] is None, "it was carried out meanwhile"
    with pytest.raises(IllegalStateError):
        call("fourth", world.now)
    assert [one.committed for one in world.cluster.ended] == [committed]


# Anything lost, at any time.


@pytest.mark.broad
@settings(max_examples=400, deadline=None)
@given(seed=st.integers(0, 2**32), version=st.sampled_from([0, 2]))
def test_every_transaction_ends_as_the_program_was_told(seed: int, version: int) -> None:
    """Requests and answers are lost, coordinators move: what was committed is committed once, and nothing else is."""
    chance = random.Random(seed)
    world = World(version)

    def inject(request: Request) -> Response | KafkaError | None:
        if chance.random() < 0.7 or len(world.asked) > 300:
            return None
        if chance.random() < 0.5:
            ask = world.asks[-1]
            world.carry_out(ask)  # and the answer is lost
            return KafkaConnectionError("broke off")
        if isinstance(request, EndTxnRequest):
            codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR]
            return EndTxnResponse(throttle_time_ms=0, error_code=chance.choice(codes))
        return KafkaConnectionError("not sent")

    world.inject = inject
    world.start()
    committed, expected = [], []
    for _ in range(6):
        world.begin(*chance.sample([P0, P1], chance.randint(0, 2)))
        partitions = {tp for tp in (P0, P1) if world.machine.may_send(tp)}
        for tp in partitions:
            assert world.write(tp) == ErrorCode.NONE
        if chance.random() < 0.4:
            world.offsets()
            assert world.outcomes["offsets"] is None
            partitions.add(TopicPartition("offsets", 0))
        commit = chance.random() < 0.6
        if not commit and chance.random() < 0.3:
            world.run(world.machine.batch_failed(error_for(ErrorCode.REQUEST_TIMED_OUT, "send"), world.now))
        assert world.end(committed=commit, gap=not commit and chance.random() < 0.3) is None
        committed.append(commit and bool(partitions))
        if partitions and commit:
            expected.append(frozenset(partitions))
    found = [
        one.partitions | ({TopicPartition("offsets", 0)} if one.offsets else set())
        for one in world.cluster.ended
        if one.committed
    ]
    assert found == expected
    assert world.machine.state is TransactionState.READY
    known = world.cluster.ids["x"].metadata
    assert (known.producer_id, known.producer_epoch) == world.epochs[-1]
    assert known.state is not broker.TransactionState.ONGOING


# A transaction that another program ends.


def test_a_prepared_transaction_is_left_open(version: int) -> None:
    world = World(version).start().begin(P0)
    assert world.write(P0) == ErrorCode.NONE
    world.offsets()
    machine = world.machine
    prepared = machine.prepare()
    assert prepared == ("x", machine.producer_id, machine.producer_epoch, 2 if version == 2 else 1)
    assert not machine.open and not machine.completing
    assert machine.next_deadline() is None
    assert "EndTxn" not in world.kinds()
    for call in (machine.prepare, lambda: machine.begin(world.now), machine.check_send):
        with pytest.raises(IllegalStateError, match=r"is prepared\. To do: stop this producer"):
            call()


def test_what_cannot_be_prepared(version: int) -> None:
    world = World(version).start()
    with pytest.raises(IllegalStateError, match="begin a transaction first"):
        world.machine.prepare()
    world.begin()
    with pytest.raises(IllegalStateError, match="nothing was written"):
        world.machine.prepare()
    world.run(world.machine.send_offsets("offsets", {P0: OffsetAndMetadata(7)}, GROUP, world.now))
    with pytest.raises(IllegalStateError, match="await them first"):
        world.machine.prepare()
    world.settle()
    world.run(world.machine.batch_failed(error_for(ErrorCode.MESSAGE_TOO_LARGE, "send"), world.now))
    with pytest.raises(TransactionAbortableError):
        world.machine.prepare()
