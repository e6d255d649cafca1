"""SASL, ACLs, client quotas and SCRAM credentials.

The exchange of SASL is over before handlers see a request (:mod:`barnabas_broker.server.sasl`): what comes here is out
of place. The others are not supported; their responses are those of a Kafka broker without them.
"""

from typing import Final

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.security.principals import ANONYMOUS
from barnabas_broker.server.refusals import SASL
from barnabas_broker.steps import Steps, each
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from barnabas_protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from barnabas_protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from barnabas_protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    UserName,
)
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_protocol.registry import ApiKey

_NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"
_NO_SASL: Final = "This listener has no SASL: connect with security.protocol=PLAINTEXT."
_AGAIN: Final = "SaslAuthenticate request received after successful authentication"


def handle_sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Answer SaslHandshake, as Kafka does on a listener without SASL, or when it comes again."""
    _warn(context)
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, mechanisms=[])


def handle_sasl_authenticate(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Answer SaslAuthenticate, likewise."""
    _warn(context)
    message = _NO_SASL if context.principal == ANONYMOUS else _AGAIN
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=message, auth_bytes=b"", session_lifetime_ms=0
    )


def _warn(context: RequestContext) -> None:
    if context.principal == ANONYMOUS:
        context.warn_not_served(SASL)


def handle_describe_acls(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Answer DescribeAcls."""
    return DescribeAclsResponse(
        throttle_time_ms=0, error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER, resources=[]
    )


@stepwise
def handle_create_acls(context: RequestContext, request: CreateAclsRequest) -> Steps[CreateAclsResponse]:
    """Answer CreateAcls, each entry on its own."""
    refused = yield from each(
        request.creations,
        lambda _: AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER),
    )
    return CreateAclsResponse(throttle_time_ms=0, results=refused)


@stepwise
def handle_delete_acls(context: RequestContext, request: DeleteAclsRequest) -> Steps[DeleteAclsResponse]:
    """Answer DeleteAcls, each filter on its own."""
    refused = yield from each(
        request.filters,
        lambda _: DeleteAclsFilterResult(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=_NO_AUTHORIZER, matching_acls=[]
        ),
    )
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=refused)


def handle_describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Answer DescribeClientQuotas: there are no quotas."""
    return DescribeClientQuotasResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message="", entries=[])


@stepwise
def handle_describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Answer DescribeUserScramCredentials: no user has credentials."""
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message="",
        results=(yield from each(request.users or (), _without_credentials)),
    )


def _without_credentials(user: UserName) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user.name,
        error_code=ErrorCode.RESOURCE_NOT_FOUND,
        error_message=f"Attempt to describe a user credential that does not exist: {user.name}",
        credential_infos=[],
    )


ROUTES: Final = (
    Route(ApiKey.SASL_HANDSHAKE, handle_sasl_handshake, ()),
    Route(ApiKey.SASL_AUTHENTICATE, handle_sasl_authenticate, ()),
    Route(ApiKey.DESCRIBE_ACLS, handle_describe_acls, (requires((acls.DESCRIBE, acls.CLUSTER)),)),
    Route(ApiKey.CREATE_ACLS, handle_create_acls, (requires((acls.ALTER, acls.CLUSTER)),)),
    Route(ApiKey.DELETE_ACLS, handle_delete_acls, (requires((acls.ALTER, acls.CLUSTER)),)),
    Route(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, handle_describe_client_quotas, (requires((acls.DESCRIBE_CONFIGS, acls.CLUSTER)),)
    ),
    Route(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        handle_describe_user_scram_credentials,
        (requires((acls.DESCRIBE, acls.CLUSTER)),),
    ),
)
