"""Counters: buckets, latencies, and error codes wherever in an answer they stand."""

from typing import Any

import pytest

from barnabas_broker.metrics import LATENCY_BOUNDS, ApiMetrics, Histogram, RequestMetrics, error_paths
from barnabas_protocol.apis import APIS
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas_protocol.messages.heartbeat import HeartbeatResponse
from barnabas_protocol.messages.leave_group import LeaveGroupResponse, MemberResponse
from barnabas_protocol.messages.metadata import MetadataResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_protocol.registry import ApiKey, api
from tests.lots import in_lots


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.0, 0), (1.0, 0), (1.0001, 1), (2.0, 1), (3.0, 2), (3.1, 3), (float("inf"), 3)]
)
def test_a_bound_belongs_to_its_bucket(value: float, bucket: int) -> None:
    histogram = Histogram([1.0, 2.0, 3.0])
    histogram.observe(value)
    assert [n for n, count in enumerate(histogram.counts) if count] == [bucket]
    assert histogram.total == value


def test_latency_bounds_ascend() -> None:
    assert list(LATENCY_BOUNDS) == sorted(set(LATENCY_BOUNDS))


@pytest.mark.parametrize("seconds", [0.0, 0.00005, 0.0003, 0.7, 31.0])
def test_an_answers_latency_is_counted_as_a_histogram_counts(seconds: float) -> None:
    metrics, twin = ApiMetrics(ApiKey.HEARTBEAT), Histogram(LATENCY_BOUNDS)
    for _ in range(3):
        metrics.answered(HeartbeatResponse(error_code=0), seconds)
        twin.observe(seconds)
    assert (metrics.latency.counts, metrics.latency.total) == (twin.counts, twin.total)
    assert metrics.errors == {}


def test_a_request_without_an_answer_counts() -> None:
    metrics = ApiMetrics(ApiKey.PRODUCE)
    metrics.answered(None, 0.001)
    assert sum(metrics.latency.counts) == 1


def test_a_failed_handler_counts_as_an_error() -> None:
    metrics = ApiMetrics(ApiKey.METADATA)
    metrics.failed(ErrorCode.UNKNOWN_SERVER_ERROR, 0.001)
    assert metrics.errors == {ErrorCode.UNKNOWN_SERVER_ERROR: 1}
    assert sum(metrics.latency.counts) == 1


def fetched(*codes: int) -> FetchResponse:
    partitions = [
        PartitionData(partition_index=n, error_code=code, high_watermark=0, records=None)
        for n, code in enumerate(codes)
    ]
    return FetchResponse(session_id=0, responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


@pytest.mark.parametrize(
    ("key", "response", "errors"),
    [
        (ApiKey.HEARTBEAT, HeartbeatResponse(error_code=27), {27: 1}),
        (ApiKey.FETCH, fetched(0, 1, 1, 3), {1: 2, 3: 1}),
        (ApiKey.FETCH, FetchResponse(error_code=70, session_id=0, responses=[]), {70: 1}),
        (
            ApiKey.LEAVE_GROUP,
            LeaveGroupResponse(
                error_code=0, members=[MemberResponse(member_id="m", group_instance_id=None, error_code=25)]
            ),
            {25: 1},
        ),
        (
            ApiKey.OFFSET_COMMIT,
            OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        name=name, partitions=[OffsetCommitResponsePartition(partition_index=0, error_code=22)]
                    )
                    for name in "ab"
                ]
            ),
            {22: 2},
        ),
    ],
)
def test_error_codes_are_counted_where_they_stand(key: ApiKey, response: Any, errors: dict[int, int]) -> None:
    metrics = ApiMetrics(key)
    metrics.answered(response, 0.001)
    assert metrics.errors == errors
    metrics.answered(response, 0.001)
    assert metrics.errors == {code: 2 * count for code, count in errors.items()}


@in_lots("key", APIS)
def test_every_answer_has_a_place_for_errors(key: ApiKey) -> None:
    assert list(error_paths(api(key).response))


def test_metadata_has_error_codes_of_topics_and_partitions() -> None:
    assert set(error_paths(MetadataResponse)) == {
        ("error_code",),
        ("topics", "error_code"),
        ("topics", "partitions", "error_code"),
    }


def test_apis_are_named_as_kafka_names_them() -> None:
    metrics = RequestMetrics()
    assert metrics.of(ApiKey.OFFSET_COMMIT) is metrics.of(ApiKey.OFFSET_COMMIT)
    metrics.of(ApiKey.INIT_PRODUCER_ID)
    assert [each.name for each in metrics] == ["OffsetCommit", "InitProducerId"]
