"""Topics in requests: named by name, or by topic id in versions that have ids (KIP-516)."""

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import Image
from barnabas_protocol.errors import ErrorCode, KafkaError


def topic_name(image: Image, name: str, topic_id: bytes, *, by_id: bool) -> str:
    """The name of the topic in a request.

    Raises:
        KafkaError: UNKNOWN_TOPIC_ID.
    """
    if not by_id:
        return name
    try:
        return image.names[topic_id]
    except KeyError:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.") from None


def missing_code(name: str) -> ErrorCode:
    """The error code for a topic that does not exist: INVALID_TOPIC_EXCEPTION if its name is not allowed."""
    try:
        controller.check_topic_name(name)
    except KafkaError as error:
        return error.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
