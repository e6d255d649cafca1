"""ACLs: the arguments and results of the admin client, and their messages. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas_client.admin.refusals import refusal, refused
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas_protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@dataclass(frozen=True, slots=True)
class AclBinding:
    """An ACL: a principal is allowed or denied an operation on a resource.

    Attributes:
        principal: "User:NAME", or ``"User:*"`` for everyone.
        operation: the operation.
        resource_type: the type of the resource.
        resource_name: its name; ``"*"`` for all, "kafka-cluster" for the cluster.
        pattern_type: LITERAL, or PREFIXED for all resources whose name begins so.
        host: the address that the client connects from; ``"*"`` for all.
        permission_type: ALLOW or DENY.
    """

    principal: str
    operation: AclOperation
    resource_type: AclResourceType
    resource_name: str
    pattern_type: AclPatternType = AclPatternType.LITERAL
    host: str = "*"
    permission_type: AclPermissionType = AclPermissionType.ALLOW


@dataclass(frozen=True, slots=True)
class AclBindingFilter:
    """Finds ACLs. None and ANY match all.

    Attributes:
        principal: as in :class:`AclBinding`.
        operation: ALL finds only ACLs for ALL.
        resource_type: the type of the resource.
        resource_name: its name.
        pattern_type: LITERAL, PREFIXED, or MATCH for all ACLs that apply to a resource of the name.
        host: the address.
        permission_type: ALLOW or DENY.
    """

    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    resource_type: AclResourceType = AclResourceType.ANY
    resource_name: str | None = None
    pattern_type: AclPatternType = AclPatternType.ANY
    host: str | None = None
    permission_type: AclPermissionType = AclPermissionType.ANY


@dataclass(frozen=True, slots=True)
class AclResult:
    """Result of creating or deleting an ACL.

    Attributes:
        acl: the ACL.
        error: why it failed; None if it did not.
    """

    acl: AclBinding
    error: KafkaError | None = None


def create_acls_request(acls: Iterable[AclBinding]) -> CreateAclsRequest:
    """The request that creates ACLs."""
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                resource_pattern_type=each.pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission_type,
            )
            for each in acls
        ]
    )


def created_acls(response: CreateAclsResponse, acls: Sequence[AclBinding]) -> list[AclResult]:
    """A result for each ACL."""
    return [
        AclResult(acl, refused(result.error_code, f"create ACL {shown(acl)}", result.error_message))
        for acl, result in zip(acls, response.results, strict=True)
    ]


def describe_acls_request(wanted: AclBindingFilter) -> DescribeAclsRequest:
    """The request for the ACLs that a filter finds."""
    return DescribeAclsRequest(**_fields(wanted))


def described_acls(response: DescribeAclsResponse) -> list[AclBinding]:
    """The ACLs of a response, in a fixed order.

    Raises:
        KafkaError: the broker has refused the request.
    """
    if response.error_code != ErrorCode.NONE:
        raise refusal(response.error_code, "describe ACLs", response.error_message)
    found = [
        _binding(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for resource in response.resources
        for each in resource.acls
    ]
    return sorted(found, key=_order)


def delete_acls_request(filters: Iterable[AclBindingFilter]) -> DeleteAclsRequest:
    """The request that deletes what filters find."""
    return DeleteAclsRequest(filters=[DeleteAclsFilter(**_fields(each)) for each in filters])


def deleted_acls(response: DeleteAclsResponse) -> list[AclResult]:
    """A result for each ACL that was found, in a fixed order.

    Raises:
        KafkaError: a filter was refused.
    """
    results: dict[AclBinding, AclResult] = {}
    for of_filter in response.filter_results:
        if of_filter.error_code != ErrorCode.NONE:
            raise refusal(of_filter.error_code, "delete ACLs", of_filter.error_message)
        for each in of_filter.matching_acls:
            acl = _binding(
                each.resource_type,
                each.resource_name,
                each.pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            results[acl] = AclResult(acl, refused(each.error_code, f"delete ACL {shown(acl)}", each.error_message))
    return [results[acl] for acl in sorted(results, key=_order)]


def shown(acl: AclBinding) -> str:
    """An ACL in one line."""
    prefix = " (prefix)" if acl.pattern_type is AclPatternType.PREFIXED else ""
    return (
        f"{acl.permission_type.name} {acl.principal} from {acl.host}: {acl.operation.name} on "
        f"{acl.resource_type.name} {acl.resource_name}{prefix}"
    )


def _order(acl: AclBinding) -> tuple[str, str, int, str, int, str, int]:
    return (
        acl.resource_type.name,
        acl.resource_name,
        acl.pattern_type,
        acl.principal,
        acl.operation,
        acl.host,
        acl.permission_type,
    )


def _fields(wanted: AclBindingFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": wanted.pattern_type,
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission_type,
    }


def _binding(
    resource: int, name: str, pattern: int, principal: str, host: str, operation: int, permission: int
) -> AclBinding:
    """An ACL of a response.

    Raises:
        KafkaError: a newer broker has a code that this client does not know.
    """
    try:
        return AclBinding(
            principal,
            AclOperation(operation),
            AclResourceType(resource),
            name,
            AclPatternType(pattern),
            host,
            AclPermissionType(permission),
        )
    except ValueError as error:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"an ACL of {principal} is of a newer kind: {error}") from None
