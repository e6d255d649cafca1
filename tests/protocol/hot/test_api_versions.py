"""ApiVersions responses by hand are what the schema makes of them: all versions, broken frames included."""

import random
from typing import Any

import pytest

from barnabas_protocol import codec
from barnabas_protocol.hot.api_versions import decode_api_ranges
from barnabas_protocol.messages.api_versions import ApiVersion, ApiVersionsResponse, SupportedFeatureKey
from tests.protocol.support import outcome

VERSIONS = list(ApiVersionsResponse.VERSIONS)


def response(count: int, features: int = 0) -> ApiVersionsResponse:
    numbers = random.Random(count)
    keys = [
        ApiVersion(api_key=key, min_version=numbers.randrange(5), max_version=numbers.randrange(5, 20))
        for key in range(count)
    ]
    known = [SupportedFeatureKey(name=f"feature.{number}", max_version=1) for number in range(features)]
    return ApiVersionsResponse(error_code=35, api_keys=keys, supported_features=known)


def by_schema(version: int, body: bytes) -> tuple[int, Any]:
    found = codec.decode(ApiVersionsResponse, version, body)
    return found.error_code, [(one.api_key, one.min_version, one.max_version) for one in found.api_keys]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [0, 1, 66, 126, 127, 300])
def test_the_versions_are_those_of_the_schema(version: int, count: int) -> None:
    body = codec.encode(response(count, 2 if version >= 3 else 0), version)
    assert decode_api_ranges(version, body) == by_schema(version, body)


def test_elements_with_tags_are_left_to_the_schema() -> None:
    plain = codec.encode(response(2), 3)
    tagged = plain[:9] + b"\x01\x05\x01x" + plain[10:]
    assert decode_api_ranges(3, tagged) == by_schema(3, tagged) == by_schema(3, plain)


@pytest.mark.parametrize("version", VERSIONS)
def test_truncated_responses_are_refused(version: int) -> None:
    body = codec.encode(response(3), version)
    for size in range(len(body)):
        assert outcome(decode_api_ranges, version, body[:size]) == outcome(by_schema, version, body[:size]) == "refused"
