"""ACLs: the arguments and results of the admin client, and parts of their messages. Pure."""

from dataclasses import dataclass
from typing import Any

from barnabas_client.admin.refusals import failure, refusal
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.create_acls import AclCreation
from barnabas_protocol.messages.delete_acls import DeleteAclsMatchingAcl, DeleteAclsResponse
from barnabas_protocol.messages.describe_acls import AclDescription, DescribeAclsResource, DescribeAclsResponse


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


def creation(acl: AclBinding) -> AclCreation:
    """The part of CreateAcls for an ACL."""
    return AclCreation(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def described_acls(response: DescribeAclsResponse) -> list[AclBinding]:
    """The ACLs of a response, in a fixed order."""
    return sorted((_binding(each, acl) for each in response.resources for acl in each.acls), key=_order)


def deleted_acls(response: DeleteAclsResponse) -> list[AclResult] | KafkaError:
    """A result for each ACL that was found, in a fixed order; one error if a filter was refused."""
    results: dict[AclBinding, AclResult] = {}
    for of_filter in response.filter_results:
        if of_filter.error_code != ErrorCode.NONE:
            return refusal(of_filter.error_code, "delete ACLs", of_filter.error_message)
        for each in of_filter.matching_acls:
            acl = _binding(each, each)
            results[acl] = AclResult(acl, failure(each, f"delete ACL {shown(acl)}"))
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


def fields(wanted: AclBindingFilter) -> dict[str, Any]:
    """The fields of DescribeAcls, and of a filter of DeleteAcls."""
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
    resource: DescribeAclsResource | DeleteAclsMatchingAcl, acl: AclDescription | DeleteAclsMatchingAcl
) -> AclBinding:
    """An ACL of a response.

    Raises:
        KafkaError: a newer broker has a code that this client does not know.
    """
    try:
        return AclBinding(
            acl.principal,
            AclOperation(acl.operation),
            AclResourceType(resource.resource_type),
            resource.resource_name,
            AclPatternType(resource.pattern_type),
            acl.host,
            AclPermissionType(acl.permission_type),
        )
    except ValueError as error:
        what = f"an ACL of {acl.principal} is of a newer kind: {error}"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, what) from None
