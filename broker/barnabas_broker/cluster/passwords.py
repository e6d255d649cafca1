"""Adds users with passwords to the cluster's metadata."""

import os
from collections.abc import Collection, Mapping

from barnabas_broker.cluster.controller import add_users
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.errors import BrokerError
from barnabas_broker.logs import logger
from barnabas_broker.security.scram import ScramCredential
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.printable import printable
from barnabas_protocol.scram import ScramMechanism

log = logger("broker")


async def add_passwords(cluster: ClusterMetadata, passwords: Mapping[str, str]) -> Collection[str]:
    """Add users for each mechanism of SCRAM, unless they exist; the names of the new ones.

    Raises:
        BrokerError: the metadata cannot be changed.
    """
    known = {user for user, _ in cluster.image.users.credentials}
    new = {
        (user, mechanism): ScramCredential.of_password(mechanism, password, os.urandom(16))
        for user, password in passwords.items()
        if user not in known
        for mechanism in ScramMechanism
    }
    try:
        added = await cluster.change(lambda image: add_users(image, new, lambda: os.urandom(32)))
    except KafkaError as error:
        raise BrokerError(f"users cannot be added: {error}") from error
    for user in added:
        log.info("user added", user=printable(user))
    return added
