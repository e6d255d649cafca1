"""ACLs, quotas and credentials, on a broker without any."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import UNTOUCHED
from tests.interop.behaviour.language import Difference, Family, Scenario, ask

_ACL: Final[dict[str, Any]] = {
    "resource_type": 2,
    "resource_name": "$topic",
    "resource_pattern_type": 3,
    "principal": "User:a",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
_FILTER: Final[dict[str, Any]] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}

SCENARIOS: Final = (
    *(
        Scenario(f"DescribeAcls v{v} without an authorizer", (ask(ApiKey.DESCRIBE_ACLS, v, **_FILTER),))
        for v in (1, 2, 3)
    ),
    *(
        Scenario(f"CreateAcls v{v} without an authorizer", (ask(ApiKey.CREATE_ACLS, v, creations=[_ACL, _ACL]),))
        for v in (1, 2, 3)
    ),
    *(
        Scenario(f"DeleteAcls v{v} without an authorizer", (ask(ApiKey.DELETE_ACLS, v, filters=[_FILTER]),))
        for v in (1, 2, 3)
    ),
    *(
        Scenario(
            f"DescribeClientQuotas v{v}: none are set",
            (
                ask(
                    ApiKey.DESCRIBE_CLIENT_QUOTAS,
                    v,
                    components=[{"entity_type": "user", "match_type": 2, "match": None}],
                ),
            ),
            server=UNTOUCHED,
        )
        for v in (0, 1)
    ),
    Scenario(
        "DescribeUserScramCredentials v0: none are set",
        (ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None),),
        server=UNTOUCHED,
    ),
    Scenario(
        "DescribeUserScramCredentials v0: of one user",
        (ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "somebody"}]),),
    ),
)

DIFFERENCES: Final[tuple[Difference, ...]] = ()

FAMILY: Final = Family("Security", SCENARIOS, DIFFERENCES)
