"""The users of SCRAM: their credentials are described, set and deleted (KIP-554).

librdkafka ends AlterUserScramCredentials with a byte too many, an empty list of tagged fields. It is ignored.

Deviation: at most :data:`MOST_CHANGES` credentials change with one request.
"""

import os
from collections.abc import Sequence
from itertools import chain
from typing import Any, Final

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import Deletion, Upsertion
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.users import Users
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import Handled, stepwise
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.steps import Steps, by_key, distinct, each
from barnabas_protocol import codec
from barnabas_protocol.codec import RequestHeader
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from barnabas_protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas_protocol.printable import printable
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from barnabas_protocol.scram import ScramMechanism
from barnabas_protocol.wire import Buffer

#: Credentials that one request may change; each of them takes some of the event loop's time.
MOST_CHANGES: Final = 1000


@stepwise
def handle_describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> Steps[DescribeUserScramCredentialsResponse]:
    """Answer DescribeUserScramCredentials: the mechanisms of users, of all of them if none is named."""
    try:
        context.require_on_cluster(acls.DESCRIBE)
    except KafkaError as error:
        refused = DescribeUserScramCredentialsResult(
            user="", error_code=error.code, error_message=error.message, credential_infos=[]
        )
        return DescribeUserScramCredentialsResponse(
            throttle_time_ms=0,
            error_code=error.code,
            error_message=error.message,
            results=[refused] * len(request.users or ()),
        )
    users = context.services.cluster.image.users
    asked, repeated = yield from by_key(request.users or (), lambda user: user.name)
    names = asked or dict.fromkeys(user for user, _ in users.credentials)
    return DescribeUserScramCredentialsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message="",
        results=(yield from each(names, lambda name: _describe(users, name, twice=name in repeated))),
    )


def _describe(users: Users, name: str, *, twice: bool) -> DescribeUserScramCredentialsResult:
    infos = [
        CredentialInfo(mechanism=mechanism, iterations=users.credentials[name, mechanism].iterations)
        for mechanism in ScramMechanism
        if (name, mechanism) in users.credentials
    ]
    code, message = ErrorCode.NONE, ""
    if twice:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not infos:
        code = ErrorCode.RESOURCE_NOT_FOUND
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(
        user=name, error_code=code, error_message=message, credential_infos=[] if code else infos
    )


@stepwise
def handle_alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> Steps[Handled]:
    """Answer AlterUserScramCredentials, each user on its own."""
    count = len(request.deletions) + len(request.upsertions)
    try:
        context.require_on_cluster(acls.ALTER)
        if count > MOST_CHANGES:
            text = f"{count} credentials in one request, at most {MOST_CHANGES} are accepted"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    except KafkaError as error:
        refused = error.kept()
        deleted, upserted = (one.name for one in request.deletions), (one.name for one in request.upsertions)
        names = yield from distinct(chain(deleted, upserted))
        results = yield from each(names, lambda name: _result(name, refused))
        return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)
    return _alter(context, request)


async def _alter(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    deletions = [Deletion(one.name, one.mechanism) for one in request.deletions]
    upsertions = [
        Upsertion(one.name, one.mechanism, one.iterations, bytes(one.salt), bytes(one.salted_password))
        for one in request.upsertions
    ]

    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]

    def decide(image: Image) -> tuple[Sequence[Event], dict[str, KafkaError | None]]:
        return controller.alter_users(image, deletions, upsertions, lambda: os.urandom(32))

    try:
        outcome = await context.services.cluster.change(decide)
    except KafkaError as error:
        outcome = dict.fromkeys((change.user for change in changes), error.kept())
    for change in changes:
        if outcome[change.user] is None:
            context.changed(
                Change.USER_DELETED if isinstance(change, Deletion) else Change.USER_SET,
                user=printable(change.user),
                mechanism=ScramMechanism(change.mechanism).title,
            )
    results = [_result(name, error) for name, error in outcome.items()]
    return AlterUserScramCredentialsResponse(throttle_time_ms=0, results=results)


def _result(name: str, error: KafkaError | None) -> AlterUserScramCredentialsResult:
    if error is None:
        return AlterUserScramCredentialsResult(user=name, error_code=ErrorCode.NONE, error_message=None)
    return AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.message or None)


def decode_alteration(request: type[Request], header: RequestHeader, frame: Buffer) -> Any:
    """Decode AlterUserScramCredentials, also with the byte too many that librdkafka sends.

    Raises:
        DecodeError: it is not one.
    """
    try:
        return codec.decode_request(request, header, frame)
    except DecodeError:
        if not len(frame) or frame[-1] != 0:
            raise
        return codec.decode_request(request, header, frame[:-1])


ROUTES: Final = (
    Route(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        handle_describe_user_scram_credentials,
        (requires((acls.DESCRIBE, acls.CLUSTER)),),
    ),
    Route(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        handle_alter_user_scram_credentials,
        (requires((acls.ALTER, acls.CLUSTER)),),
        decode=decode_alteration,
        changes=(Change.USER_SET, Change.USER_DELETED),
    ),
)
