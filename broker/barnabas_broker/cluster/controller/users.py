"""Changes of the users of SCRAM, as Kafka's ``ScramControlManager`` decides them. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.users import ScramCredentialDeleted, ScramCredentialSet, ScramSecretSet
from barnabas_broker.security.scram import ScramCredential
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.scram import LEAST_ITERATIONS, MOST_ITERATIONS, ScramMechanism

#: Maximum bytes of a name, and of a salt; Kafka has no bounds.
LONGEST: Final = 1024
_MECHANISMS: Final = frozenset(ScramMechanism)


@dataclass(frozen=True, slots=True)
class Deletion:
    """A credential to delete; the mechanism is Kafka's code."""

    user: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class Upsertion:
    """A credential to set; the mechanism is Kafka's code. The client has derived the salted password."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes = field(repr=False)


def alter_users(
    image: Image,
    deletions: Sequence[Deletion],
    upsertions: Sequence[Upsertion],
    new_secret: Callable[[], bytes],
) -> tuple[list[Event], dict[str, KafkaError | None]]:
    """Change credentials, each user on its own: one who is named twice is refused.

    Args:
        image: the cluster image.
        deletions: credentials to delete.
        upsertions: credentials to set.
        new_secret: makes 32 random bytes.

    Returns:
        The events, and for each user the error; None without.
    """
    outcome: dict[str, KafkaError | None] = {}
    events: dict[str, Event] = {}
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for each in changes:
        if each.user in events:
            del events[each.user]
            message = "A user credential cannot be altered twice in the same request"
            outcome[each.user] = KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
        elif each.user not in outcome:
            try:
                events[each.user] = _event(image, each)
                outcome[each.user] = None
            except KafkaError as error:
                outcome[each.user] = error.kept()
    made = list(events.values())
    if not image.users.secret and any(isinstance(event, ScramCredentialSet) for event in made):
        made.insert(0, ScramSecretSet(new_secret()))
    return made, outcome


def add_users(
    image: Image, credentials: Mapping[tuple[str, ScramMechanism], ScramCredential], new_secret: Callable[[], bytes]
) -> tuple[list[Event], list[str]]:
    """Add the users who have no credential at all; the others keep what they have.

    Returns:
        The events, and who was added.
    """
    known = {user for user, _ in image.users.credentials}
    events: list[Event] = [
        ScramCredentialSet(user, mechanism, credential)
        for (user, mechanism), credential in credentials.items()
        if user not in known
    ]
    if events and not image.users.secret:
        events.insert(0, ScramSecretSet(new_secret()))
    return events, list(dict.fromkeys(user for user, _ in credentials if user not in known))


def _event(image: Image, change: Deletion | Upsertion) -> Event:
    """The event of a change.

    Raises:
        KafkaError: the change is refused.
    """
    if not change.user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in _MECHANISMS:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    mechanism = ScramMechanism(change.mechanism)
    if isinstance(change, Deletion):
        if (change.user, mechanism) not in image.users.credentials:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return ScramCredentialDeleted(change.user, mechanism)
    if change.iterations < LEAST_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MOST_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if len(change.user.encode("utf-8", "replace")) > LONGEST:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Username must have at most {LONGEST} bytes")
    if len(change.salt) > LONGEST or len(change.salted_password) > LONGEST:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Salt and salted password must have at most {LONGEST} bytes"
        )
    credential = ScramCredential.of_salted(mechanism, change.salted_password, change.salt, change.iterations)
    return ScramCredentialSet(change.user, mechanism, credential)
