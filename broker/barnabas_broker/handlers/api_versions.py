"""ApiVersions: the APIs and versions that are served, derived from the rows of the handlers."""

import re
from typing import Final

from barnabas_broker.handlers.context import RequestContext, Services
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.features import FEATURES
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from barnabas_protocol.registry import ApiKey

#: What a client may call its software and version (KIP-511).
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_TELEMETRY: Final = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)
#: The node id of a client that expects no broker in particular.
_ANY_NODE: Final = -1


def handle_api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Answer ApiVersions, and remember what the client calls its software."""
    if context.version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        context.peer.software = f"{name} {version}"
        error = _check_broker(context, request.cluster_id, request.node_id)
        if error is not ErrorCode.NONE:
            return ApiVersionsResponse(error_code=error, api_keys=[])
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=_listed(context.services),
        # Clients before version 4 cannot read a feature that begins at version 0.
        supported_features=(
            [SupportedFeatureKey(name=name, max_version=version) for name, version in FEATURES.items()]
            if context.version >= 4
            else []
        ),
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=version, min_version_level=version)
            for name, version in FEATURES.items()
        ],
    )


def _listed(services: Services) -> list[ApiVersion]:
    """The APIs; those of telemetry only while there is a subscription, because clients that see them ask for it."""
    if services.cluster.image.client_metrics:
        return services.api_versions
    return [each for each in services.api_versions if each.api_key not in _TELEMETRY]


def _check_broker(context: RequestContext, cluster_id: str | None, node_id: int) -> ErrorCode:
    """Check that this is the broker that the client expects, if it says which (KIP-1242).

    Returns:
        REBOOTSTRAP_REQUIRED if another broker has the address by now; INVALID_REQUEST if only one of the two is given.
    """
    if cluster_id is None and node_id == _ANY_NODE:
        return ErrorCode.NONE
    if not cluster_id or node_id < 0:
        return ErrorCode.INVALID_REQUEST
    services = context.services
    expected = (cluster_id, node_id) == (services.cluster.image.cluster_id, services.node_id)
    return ErrorCode.NONE if expected else ErrorCode.REBOOTSTRAP_REQUIRED


ROUTES: Final = (Route(ApiKey.API_VERSIONS, handle_api_versions, ()),)
