"""FetchContext sessions (KIP-227), with a moving clock."""

import gc
import tracemalloc
from itertools import count

from barnabas_broker.replication.fetch_sessions import EVICTION_SECONDS, FetchContext, FetchSessionCache, TopicKey
from barnabas_broker.steps import finish
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

ZERO = bytes(16)


def cache(slots: int = 10, partitions: int = 1000) -> FetchSessionCache:
    ids = count(100)
    return FetchSessionCache(slots, partitions, lambda: next(ids))


def ask(
    partitions: dict[int, int] | None = None, session: int = 0, epoch: int = 0, forget: tuple[int, ...] = ()
) -> FetchRequest:
    wanted = [
        FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=100) for p, o in (partitions or {}).items()
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", topic_id=ZERO, partitions=wanted)] if wanted else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", topic_id=ZERO, partitions=list(forget))] if forget else [],
    )


def answer(
    fetch: FetchContext, data: dict[int, bytes], high_watermark: int = 5, code: int = 0, *, diverges: bool = False
) -> list[int]:
    """Answer `fetch`, partitions in `data` with records; the partitions in the response."""
    partitions = [
        PartitionData(
            partition_index=p,
            error_code=code,
            high_watermark=high_watermark,
            log_start_offset=0,
            diverging_epoch=FetchEpochEndOffset(epoch=1, end_offset=3) if diverges else None,
            aborted_transactions=None,
            records=data.get(p, b""),
        )
        for _, p in fetch.wanted
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=ZERO, partitions=partitions)])
    fetch.trim(response)
    return [p.partition_index for t in response.responses for p in t.partitions]


def test_without_a_session_the_response_has_all_partitions() -> None:
    fetch = finish(cache().resolve(ask({0: 0, 1: 0}, epoch=-1), 12, 0))
    assert fetch.session is None
    assert answer(fetch, {}) == [0, 1]


def test_a_session_response_has_only_partitions_with_news() -> None:
    sessions = cache()
    first = finish(sessions.resolve(ask({0: 0, 1: 0}), 12, 0))
    assert first.session is not None
    assert answer(first, {}) == [0, 1]
    number = first.session.session_id
    second = finish(sessions.resolve(ask(session=number, epoch=1), 12, 0))
    assert set(second.wanted) == {(TopicKey("t", ZERO), 0), (TopicKey("t", ZERO), 1)}
    assert answer(second, {1: b"data"}) == [1]
    third = finish(sessions.resolve(ask(session=number, epoch=2), 12, 0))
    assert answer(third, {}) == []
    fourth = finish(sessions.resolve(ask(session=number, epoch=3), 12, 0))
    assert answer(fourth, {}, high_watermark=6) == [0, 1]


def test_a_served_partition_moves_to_the_end() -> None:
    sessions = cache()
    first = finish(sessions.resolve(ask({0: 0, 1: 0, 2: 0}), 12, 0))
    assert first.session is not None
    answer(first, {0: b"data"})
    second = finish(sessions.resolve(ask(session=first.session.session_id, epoch=1), 12, 0))
    assert [p for _, p in second.wanted] == [1, 2, 0]


def test_an_error_and_its_end_are_news() -> None:
    sessions = cache()
    first = finish(sessions.resolve(ask({0: 0}), 12, 0))
    assert first.session is not None
    answer(first, {})
    number = first.session.session_id
    assert answer(finish(sessions.resolve(ask(session=number, epoch=1), 12, 0)), {}, code=3) == [0]
    assert answer(finish(sessions.resolve(ask(session=number, epoch=2), 12, 0)), {}) == [0]
    assert answer(finish(sessions.resolve(ask(session=number, epoch=3), 12, 0)), {}) == []


def test_after_a_diverging_epoch_the_high_watermark_is_news() -> None:
    """The follower truncates its log, and takes nothing else of the answer: an idle partition must tell it again."""
    sessions = cache()
    first = finish(sessions.resolve(ask({0: 0}), 12, 0))
    assert first.session is not None
    assert answer(first, {}, diverges=True) == [0]
    session = first.session.session_id
    for epoch, told in ((1, [0]), (2, [])):
        assert answer(finish(sessions.resolve(ask(session=session, epoch=epoch), 12, 0)), {}) == told


def test_partitions_are_added_changed_and_forgotten() -> None:
    sessions = cache()
    first = finish(sessions.resolve(ask({0: 0, 1: 0}), 12, 0))
    assert first.session is not None
    number = first.session.session_id
    second = finish(sessions.resolve(ask({1: 7, 2: 0}, session=number, epoch=1, forget=(0,)), 12, 0))
    assert {p: w.fetch_offset for (_, p), w in second.wanted.items()} == {1: 7, 2: 0}


def test_an_unknown_session_or_a_wrong_epoch_is_rejected() -> None:
    sessions = cache()
    first = finish(sessions.resolve(ask({0: 0}), 12, 0))
    assert first.session is not None
    number = first.session.session_id
    assert finish(sessions.resolve(ask(session=99, epoch=1), 12, 0)).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert finish(sessions.resolve(ask(session=number, epoch=2), 12, 0)).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert finish(sessions.resolve(ask(session=number, epoch=1), 13, 0)).error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert finish(sessions.resolve(ask(session=number, epoch=1), 12, 0)).error is ErrorCode.NONE


def test_a_session_can_be_closed() -> None:
    sessions = cache()
    first = finish(sessions.resolve(ask({0: 0}), 12, 0))
    assert first.session is not None
    assert finish(sessions.resolve(ask({0: 0}, session=first.session.session_id, epoch=-1), 12, 0)).session is None
    assert len(sessions) == 0


def test_a_full_cache_evicts_only_idle_sessions() -> None:
    sessions = cache(slots=1)
    first = finish(sessions.resolve(ask({0: 0}), 12, 0))
    assert first.session is not None
    assert finish(sessions.resolve(ask({0: 0}), 12, 1)).session is None
    later = finish(sessions.resolve(ask({0: 0}), 12, EVICTION_SECONDS + 1))
    assert later.session is not None
    assert len(sessions) == 1
    gone = finish(sessions.resolve(ask(session=first.session.session_id, epoch=1), 12, EVICTION_SECONDS + 1))
    assert gone.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    sessions = cache(partitions=5)
    assert finish(sessions.resolve(ask(dict.fromkeys(range(6), 0)), 12, 0)).session is None
    first = finish(sessions.resolve(ask({0: 0, 1: 0, 2: 0}), 12, 0)).session
    second = finish(sessions.resolve(ask({0: 0, 1: 0}), 12, 0)).session
    assert first is not None and second is not None
    assert finish(sessions.resolve(ask({0: 0}), 12, 1)).session is None
    grown = finish(sessions.resolve(ask({2: 0}, second.session_id, 1), 12, 1))
    assert grown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert finish(sessions.resolve(ask({}, first.session_id, 1, (1, 2)), 12, 1)).session is first
    assert finish(sessions.resolve(ask({0: 0, 1: 0, 2: 0, 3: 0}), 12, 1)).session is not None
    assert finish(sessions.resolve(ask({0: 0}), 12, 1)).session is None
    assert finish(sessions.resolve(ask({0: 0}), 12, EVICTION_SECONDS + 2)).session is not None


def test_epochs_wrap_around_zero() -> None:
    sessions = cache()
    first = finish(sessions.resolve(ask({0: 0}), 12, 0))
    assert first.session is not None
    first.session.epoch = 2**31 - 1
    finish(sessions.resolve(ask(session=first.session.session_id, epoch=2**31 - 1), 12, 0))
    assert first.session.epoch == 1


def test_sessions_take_as_much_memory_as_the_configuration_says() -> None:
    many = 5000
    request = encode(ask(dict.fromkeys(range(many), 1_000_000)), 12)
    sessions = cache(slots=1000, partitions=many)
    gc.collect()
    tracemalloc.start()
    try:
        finish(sessions.resolve(decode(FetchRequest, 12, request), 12, 0.0))
        gc.collect()
        assert len(sessions) == 1
        assert tracemalloc.get_traced_memory()[0] / many < 350
        for _ in range(10):
            assert finish(sessions.resolve(decode(FetchRequest, 12, request), 12, 0.0)).session is None
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] / many < 350
    finally:
        tracemalloc.stop()


def test_the_high_watermark_is_sent_again_in_another_leader_epoch() -> None:
    sessions = cache()

    def named(leader_epoch: int, session: int, epoch: int) -> FetchContext:
        request = ask({0: 5}, session, epoch)
        request.topics[0].partitions[0].current_leader_epoch = leader_epoch
        return finish(sessions.resolve(request, 12, 0))

    first = named(1, 0, 0)
    assert answer(first, {}) == [0]
    assert first.session is not None
    assert answer(named(1, first.session.session_id, 1), {}) == [], "it knows that"
    # It did not look at that answer if it had just heard of the next leader epoch.
    assert answer(named(2, first.session.session_id, 2), {}) == [0]
