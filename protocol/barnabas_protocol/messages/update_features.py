"""UpdateFeatures (key 57), versions 0-2, flexible from 0.

Changes the levels of the cluster's features (KIP-584). Version 1 names the kind of change and can only check it; from
version 2 on an error is that of the whole request.
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class FeatureUpdateKey(Struct):
    feature: str = field(STRING)
    max_version_level: int = field(INT16)
    allow_downgrade: bool = field(BOOLEAN, "0", default=False)
    upgrade_type: int = field(INT8, "1+", default=1)


class UpdateFeaturesRequest(Request, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = field(INT32, default=60_000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey))
    validate_only: bool = field(BOOLEAN, "1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: str = field(STRING, "0-1")
    error_code: int = field(INT16, "0-1")
    error_message: str | None = field(STRING, "0-1", nullable="0-1")


class UpdateFeaturesResponse(Response, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    results: list[UpdatableFeatureResult] = field(array(UpdatableFeatureResult), "0-1", default=[], ignorable=True)


API: Final = Api(UpdateFeaturesRequest, UpdateFeaturesResponse)
