"""AlterUserScramCredentials (key 51), version 0, flexible from 0.

Sets and deletes the SCRAM credentials of users (KIP-554).
"""

from typing import Final

from barnabas_protocol.schema import BYTES, INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field
from barnabas_protocol.wire import Buffer


class ScramCredentialDeletion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)


class ScramCredentialUpsertion(Struct):
    name: str = field(STRING)
    mechanism: int = field(INT8)
    iterations: int = field(INT32)
    salt: Buffer = field(BYTES)
    salted_password: Buffer = field(BYTES)


class AlterUserScramCredentialsRequest(Request, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field(array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")


class AlterUserScramCredentialsResponse(Response, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    results: list[AlterUserScramCredentialsResult] = field(array(AlterUserScramCredentialsResult))


API: Final = Api(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse)
