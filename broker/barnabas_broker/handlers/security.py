"""SASL and ACLs.

The exchange of SASL is over before handlers see a request (:mod:`barnabas_broker.server.sasl`): what comes here is out
of place. ACLs are part of the cluster's metadata; without an authorizer they are refused, as in Kafka.

Deviation: the filters of a DeleteAcls that come after those that have found 100,000 ACLs together are refused and
delete nothing. Kafka answers each: one filter that finds everything, 10,000 times, gets an answer of gigabytes.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.acls import AclCreated, AclDeleted
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.repeats import MOST_ROWS
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.security.bindings import AclBinding, AclFilter, read_binding, read_filter
from barnabas_broker.security.principals import ANONYMOUS
from barnabas_broker.server.refusals import SASL
from barnabas_broker.steps import Steps
from barnabas_protocol.acls import AclOperation, AclPatternType
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from barnabas_protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas_protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_protocol.registry import ApiKey

T = TypeVar("T")

#: Bindings that are stored in one step.
_BATCH: Final = 500
#: Bindings that are compared with a filter in one step.
_COMPARED: Final = 100
_TOO_MANY_FOUND: Final = f"The filters before this one have found {MOST_ROWS:,} ACLs: send it again on its own."
_NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"
_NO_SASL: Final = "This listener has no SASL: connect with security.protocol=PLAINTEXT."
_AGAIN: Final = "SaslAuthenticate request received after successful authentication"


class _Found(NamedTuple):
    """ACLs that a filter of DeleteAcls has found, or the reason why it is refused."""

    error: KafkaError | None
    bindings: list[AclBinding]


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


@stepwise
def handle_describe_acls(context: RequestContext, request: DescribeAclsRequest) -> Steps[DescribeAclsResponse]:
    """Answer DescribeAcls: the bindings that the filter finds, by resource."""
    response = DescribeAclsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, error_message="", resources=[])
    try:
        context.require_on_cluster(acls.DESCRIBE)
        _check_switched_on(context)
        wanted = _filter(request)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
        return response
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for binding in context.services.cluster.image.acls:
        yield
        if not wanted.matches(binding):
            continue
        key = binding.resource_type, binding.resource_name, binding.pattern_type
        if key not in resources:
            kind, name, pattern = key
            resources[key] = DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=[])
        resources[key].acls.append(
            AclDescription(
                principal=binding.principal,
                host=binding.host,
                operation=binding.operation,
                permission_type=binding.permission,
            )
        )
    # Before version 1 there are no prefixes (KIP-290).
    response.resources = [
        each for each in resources.values() if context.version > 0 or each.pattern_type == AclPatternType.LITERAL
    ]
    return response


async def handle_create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Answer CreateAcls, each binding on its own. One that exists already is a success."""
    results: list[AclCreationResult] = []
    valid: list[tuple[AclBinding, AclCreationResult]] = []
    refusal = _refusal(context, acls.ALTER)
    for number, creation in enumerate(request.creations):
        result = AclCreationResult(error_code=ErrorCode.NONE, error_message="")
        results.append(result)
        if refusal is not None:
            result.error_code, result.error_message = refusal.code, refusal.message
        else:
            try:
                valid.append((_binding(creation), result))
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message
        if number % _BATCH == _BATCH - 1:
            await asyncio.sleep(0)
    for some in _batches(valid):
        bindings = [binding for binding, _ in some]

        def decide(image: Image, bindings: list[AclBinding] = bindings) -> tuple[Sequence[Event], list[AclCreated]]:
            events = controller.create_acls(image, bindings)
            return events, events

        try:
            created = await context.services.cluster.change(decide)
        except KafkaError as error:
            for _, result in some:
                result.error_code, result.error_message = error.code, error.message
        else:
            for event in created:
                context.changed(Change.ACL_CREATED, acl=str(event.binding))
        await asyncio.sleep(0)  # a batch that changes nothing does not wait for anything
    return CreateAclsResponse(throttle_time_ms=0, results=results)


async def handle_delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Answer DeleteAcls: the bindings that each filter finds are deleted. All filters see the same bindings."""
    refusal = _refusal(context, acls.ALTER)
    present = list(context.services.cluster.image.acls)
    results, found = await context.sliced(_found(request.filters, present, refusal))
    errors: dict[AclBinding, KafkaError] = {}
    for bindings in _batches(found):

        def decide(image: Image, bindings: list[AclBinding] = bindings) -> tuple[Sequence[Event], list[AclDeleted]]:
            events = controller.delete_acls(image, bindings)
            return events, events

        try:
            deleted = await context.services.cluster.change(decide)
        except KafkaError as error:
            errors |= dict.fromkeys(bindings, error.kept())
        else:
            for event in deleted:
                context.changed(Change.ACL_DELETED, acl=str(event.binding))
        await asyncio.sleep(0)
    answers = await context.sliced(_filter_results(results, errors, context.version))
    return DeleteAclsResponse(throttle_time_ms=0, filter_results=answers)


def _check_switched_on(context: RequestContext) -> None:
    """Check that the broker has an authorizer.

    Raises:
        KafkaError: SECURITY_DISABLED.
    """
    if context.services.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, _NO_AUTHORIZER)


def _refusal(context: RequestContext, operation: AclOperation) -> KafkaError | None:
    """Why the client may not change the ACLs; None if it may."""
    try:
        context.require_on_cluster(operation)
        _check_switched_on(context)
    except KafkaError as error:
        return error.kept()
    return None


def _batches(items: Sequence[T]) -> Iterator[list[T]]:
    for start in range(0, len(items), _BATCH):
        yield list(items[start : start + _BATCH])


def _binding(creation: AclCreation) -> AclBinding:
    return read_binding(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return read_filter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _found(
    filters: Sequence[DeleteAclsFilter], present: Sequence[AclBinding], refusal: KafkaError | None
) -> Steps[tuple[list[_Found], list[AclBinding]]]:
    """Find the ACLs of each filter, and all of them. Filters that are equal, or find nothing, share one result.

    Those that come when :data:`~barnabas_broker.repeats.MOST_ROWS` ACLs were found are refused.
    """
    refused, nothing = _Found(refusal, []), _Found(None, [])
    too_many = _Found(KafkaError(ErrorCode.INVALID_REQUEST, _TOO_MANY_FOUND).kept(), [])
    left = MOST_ROWS
    known: dict[AclFilter, _Found] = {}
    results: list[_Found] = []
    found: dict[AclBinding, None] = {}
    for asked in filters:
        yield
        if refusal is not None:
            results.append(refused)
            continue
        if left <= 0:
            results.append(too_many)
            continue
        try:
            wanted = _filter(asked)
        except KafkaError as error:
            results.append(_Found(error.kept(), []))
            continue
        result = known.get(wanted)
        if result is None:
            matching = []
            for number, binding in enumerate(present, 1):
                if wanted.matches(binding):
                    matching.append(binding)
                    found[binding] = None
                if not number % _COMPARED:
                    yield
            result = nothing
            if matching:
                result = known[wanted] = _Found(None, matching)
        results.append(result)
        left -= len(result.bindings)
    return results, list(found)


def _filter_results(
    results: Sequence[_Found], errors: Mapping[AclBinding, KafkaError], version: int
) -> Steps[list[DeleteAclsFilterResult]]:
    """The answers to filters; those to filters that have found the same are one object."""
    made: dict[int, DeleteAclsFilterResult] = {}
    answers = []
    for result in results:
        yield
        answer = made.get(id(result))
        if answer is None:
            error = result.error
            answer = made[id(result)] = DeleteAclsFilterResult(
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message,
                matching_acls=[],
            )
            for binding in result.bindings:
                if version > 0 or binding.pattern_type is AclPatternType.LITERAL:
                    answer.matching_acls.append(_deleted(binding, errors.get(binding)))
                yield
        answers.append(answer)
    return answers


def _deleted(binding: AclBinding, error: KafkaError | None) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        resource_type=binding.resource_type,
        resource_name=binding.resource_name,
        pattern_type=binding.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


ROUTES: Final = (
    Route(ApiKey.SASL_HANDSHAKE, handle_sasl_handshake, ()),
    Route(ApiKey.SASL_AUTHENTICATE, handle_sasl_authenticate, ()),
    Route(ApiKey.DESCRIBE_ACLS, handle_describe_acls, (requires((acls.DESCRIBE, acls.CLUSTER)),)),
    Route(
        ApiKey.CREATE_ACLS,
        handle_create_acls,
        (requires((acls.ALTER, acls.CLUSTER)),),
        changes=(Change.ACL_CREATED,),
    ),
    Route(
        ApiKey.DELETE_ACLS,
        handle_delete_acls,
        (requires((acls.ALTER, acls.CLUSTER)),),
        changes=(Change.ACL_DELETED,),
    ),
)
