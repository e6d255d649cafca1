"""The requests about users of SCRAM (KIP-554), and what responses mean. Pure, but for the salt.

A broker never gets a password: this client derives the salted password, of which the broker stores two keys.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from barnabas_client.admin.refusals import failure
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsResponse
from barnabas_protocol.scram import LEAST_ITERATIONS, MOST_ITERATIONS, ScramMechanism

_SALT_BYTES: Final = 24
_KNOWN: Final = frozenset(ScramMechanism)


@dataclass(frozen=True, slots=True)
class UserScramCredentials:
    """The credentials of a user.

    Attributes:
        user: the name.
        iterations: rounds of the hash function, by mechanism.
        error: None if the user was described.
    """

    user: str
    iterations: dict[ScramMechanism, int] = field(default_factory=dict)
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """Sets the credential of a user for a mechanism, in place of the one before.

    Args:
        user: the name.
        mechanism: the mechanism.
        password: the password; only what is derived from it is sent.
        iterations: rounds of the hash function. Default: 4096.
        salt: random bytes. Default: None, which makes 24.

    Raises:
        ValueError: name or password is empty, or the number of iterations is not from 4096 to 16384.
    """

    user: str
    mechanism: ScramMechanism
    password: str = field(repr=False)
    iterations: int = LEAST_ITERATIONS
    salt: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.user or not self.password:
            raise ValueError("the user's name or password is empty: give both")
        if not LEAST_ITERATIONS <= self.iterations <= MOST_ITERATIONS:
            raise ValueError(
                f"iterations is {self.iterations}: give a number from {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
            )

    def derived(self) -> ScramCredentialUpsertion:
        """Derive the entry of the request from the password; this takes some milliseconds."""
        salt = os.urandom(_SALT_BYTES) if self.salt is None else self.salt
        return ScramCredentialUpsertion(
            name=self.user,
            mechanism=self.mechanism,
            iterations=self.iterations,
            salt=salt,
            salted_password=self.mechanism.salted(self.password, salt, self.iterations),
        )


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """Deletes the credential of a user for a mechanism.

    Args:
        user: the name.
        mechanism: the mechanism.
    """

    user: str
    mechanism: ScramMechanism


@dataclass(frozen=True, slots=True)
class UserResult:
    """The result of changing a user.

    Attributes:
        user: the name.
        error: None if the user was changed.
    """

    user: str
    error: KafkaError | None = None


def described_users(response: DescribeUserScramCredentialsResponse) -> list[UserScramCredentials]:
    """The credentials of each user, by name."""
    found = [
        UserScramCredentials(
            one.user,
            {
                ScramMechanism(info.mechanism): info.iterations
                for info in one.credential_infos
                if info.mechanism in _KNOWN
            },
            failure(one, f"describe user {one.user!r}"),
        )
        for one in response.results
    ]
    return sorted(found, key=lambda one: one.user)


def alter_users_request(
    alterations: Iterable[UserScramCredentialUpsertion | UserScramCredentialDeletion],
) -> AlterUserScramCredentialsRequest:
    """The request that changes users; deriving the keys takes some milliseconds for each."""
    deletions, upsertions = [], []
    for one in alterations:
        if isinstance(one, UserScramCredentialDeletion):
            deletions.append(ScramCredentialDeletion(name=one.user, mechanism=one.mechanism))
        else:
            upsertions.append(one.derived())
    return AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
