"""ApiVersions: what is served, derived from the table of handlers."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Handler, api_version_entry
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Versions

#: What a client may call its software and version (KIP-511).
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handler_for(served: Callable[[], Mapping[ApiKey, Versions]]) -> Handler:
    """A handler that tells what is `served`, which it asks for when it is first asked itself."""
    keys: list[ApiVersion] = []

    def handle(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if not keys:
            keys.extend(api_version_entry(key, versions) for key, versions in sorted(served().items()))
        if context.version >= 3:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
            context.peer.software = f"{name} {version}"
        return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=keys, finalized_features_epoch=0)

    return handle
