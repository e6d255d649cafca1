"""DeleteAcls while there are many ACLs."""

import pytest

from barnabas_broker.config.keys import STANDARD_AUTHORIZER
from barnabas_broker.repeats import MOST_ROWS
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from tests.broker.conftest import StartBroker
from tests.broker.handlers.test_crowded_requests import LONGEST, everything
from tests.broker.handlers.test_large_requests import ATTEMPTS, HELD
from tests.turns import watched
from tests.wire import Wire

pytestmark = [pytest.mark.broad, pytest.mark.timeout(2 * LONGEST), pytest.mark.usefixtures("collector")]

#: ACLs of the broker.
MANY = 80_000
#: Filters of one request that find the same ACLs.
AGAIN = 3_000


def wanted(principal: str, permission: int = 1) -> DeleteAclsFilter:
    """Finds all ACLs of a principal, or those with a permission."""
    return DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=principal,
        host_filter=None,
        operation=1,
        permission_type=permission,
    )


def creations(count: int) -> list[AclCreation]:
    """ACLs that deny, of one topic each: all but 11 are those of one principal."""
    return [
        AclCreation(
            resource_type=2,
            resource_name=f"t{number}",
            principal="User:many" if number > 10 else "User:few",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number in range(count)
    ]


async def test_a_filter_that_is_compared_with_many_acls_does_not_hold_the_loop(start_broker: StartBroker) -> None:
    broker = await start_broker(authorizer_class_name=STANDARD_AUTHORIZER)
    authorizer = broker.services.authorizer
    assert authorizer is not None
    authorizer.change(added=everything())
    async with await Wire.connect(broker.port) as wire:
        await wire.ask(CreateAclsRequest(creations=creations(MANY)), 3, CreateAclsResponse)
        held: list[float] = []
        # What holds the loop does so each time; a core that is shared with other programs may be slow once.
        while len(held) < ATTEMPTS and min(held, default=HELD) >= HELD:
            with watched() as longest:
                request = DeleteAclsRequest(filters=[wanted("User:many", permission=2)])
                answer = await wire.ask(request, 3, DeleteAclsResponse)
                held.append(longest())
            assert [each.matching_acls for each in answer.filter_results] == [[]]
        assert min(held) < HELD
        few = await wire.ask(DeleteAclsRequest(filters=[wanted("User:few"), wanted("User:few")]), 3, DeleteAclsResponse)
    names = {f"t{number}" for number in range(11)}
    assert [{acl.resource_name for acl in each.matching_acls} for each in few.filter_results] == [names, names]
    assert len(broker.services.cluster.image.acls) == MANY - len(names)


async def test_filters_that_find_very_many_acls_are_answered_up_to_a_bound(start_broker: StartBroker) -> None:
    broker = await start_broker(authorizer_class_name=STANDARD_AUTHORIZER)
    authorizer = broker.services.authorizer
    assert authorizer is not None
    authorizer.change(added=everything())
    found = 1_000
    whole = MOST_ROWS // found
    request = DeleteAclsRequest(filters=[*[wanted("User:many")] * AGAIN, wanted("User:few")])
    async with await Wire.connect(broker.port, limit=2**30) as wire:
        await wire.ask(CreateAclsRequest(creations=creations(found + 11)), 3, CreateAclsResponse)
        answer = await wire.ask(request, 3, DeleteAclsResponse)
        assert [len(each.matching_acls) for each in answer.filter_results] == [found] * whole + [0] * (
            AGAIN + 1 - whole
        )
        codes = [each.error_code for each in answer.filter_results]
        assert codes == [ErrorCode.NONE] * whole + [ErrorCode.INVALID_REQUEST] * (AGAIN + 1 - whole)
        # What was refused has deleted nothing, and works on its own.
        few = await wire.ask(DeleteAclsRequest(filters=[wanted("User:few")]), 3, DeleteAclsResponse)
    assert [len(each.matching_acls) for each in few.filter_results] == [11]
