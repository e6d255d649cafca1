"""ApiVersions (key 18), versions 0-5, flexible from 3.

Returns the APIs and versions of the broker. The response header is always version 0. A request of an unknown version
gets UNSUPPORTED_VERSION in a response of version 0, which every client can read (KIP-511). Version 5 names the broker
that the client expects (KIP-1242).
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Api, Request, Response, Struct, array, field


class ApiVersionsRequest(Request, api_key=18, versions="0-5", flexible="3+"):
    client_software_name: str = field(STRING, "3+", default="", ignorable=True)
    client_software_version: str = field(STRING, "3+", default="", ignorable=True)
    cluster_id: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    node_id: int = field(INT32, "5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = field(INT16)
    min_version: int = field(INT16)
    max_version: int = field(INT16)


class SupportedFeatureKey(Struct):
    name: str = field(STRING, "3+", default="")
    min_version: int = field(INT16, "3+", default=0)
    max_version: int = field(INT16, "3+", default=0)


class FinalizedFeatureKey(Struct):
    name: str = field(STRING, "3+", default="")
    max_version_level: int = field(INT16, "3+", default=0)
    min_version_level: int = field(INT16, "3+", default=0)


class ApiVersionsResponse(Response, api_key=18, versions="0-5", flexible="3+"):
    error_code: int = field(INT16)
    api_keys: list[ApiVersion] = field(array(ApiVersion))
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey), "3+", default=[], tag=0, tagged="3+", ignorable=True
    )
    finalized_features_epoch: int = field(INT64, "3+", default=-1, tag=1, tagged="3+", ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey), "3+", default=[], tag=2, tagged="3+", ignorable=True
    )
    zk_migration_ready: bool = field(BOOLEAN, "3+", default=False, tag=3, tagged="3+", ignorable=True)


API: Final = Api(ApiVersionsRequest, ApiVersionsResponse)
