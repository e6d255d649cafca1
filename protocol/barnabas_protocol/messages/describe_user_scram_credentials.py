"""DescribeUserScramCredentials (key 50), version 0, flexible from 0.

Lists the users that have SCRAM credentials, and the mechanisms of each (KIP-554).
"""

from typing import Final

from barnabas_protocol.schema import INT8, INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class UserName(Struct):
    name: str = field(STRING)


class DescribeUserScramCredentialsRequest(Request, api_key=50, versions="0", flexible="0+"):
    users: list[UserName] | None = field(array(UserName), nullable="0+")


class CredentialInfo(Struct):
    mechanism: int = field(INT8)
    iterations: int = field(INT32)


class DescribeUserScramCredentialsResult(Struct):
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    credential_infos: list[CredentialInfo] = field(array(CredentialInfo))


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = field(array(DescribeUserScramCredentialsResult))


API: Final = Api(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse)
