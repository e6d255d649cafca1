"""Certificates for trying TLS: an authority, and with it those of a broker and of a client.

The key of the authority is not kept, so that nothing else can be signed with it.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from barnabas_broker.optional import require

AUTHORITY: Final = "ca.pem"
BROKER: Final = "broker.pem"
CLIENT: Final = "client.pem"


def issue(folder: Path, hosts: Iterable[str], *, wanted_by: str) -> None:
    """Make the files of an authority, a broker and a client. Keys can be read by their owner only.

    Args:
        folder: where they are written; it is made if it does not exist.
        hosts: names and addresses of the broker.
        wanted_by: what needs them, for the error about a missing package.

    Raises:
        OSError: a file cannot be written.
        BrokerError: trustme is not installed.
    """
    trustme = require("trustme", wanted_by=wanted_by, extra="testing")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = trustme.CA(organization_name="Barnabas", organization_unit_name="for trying TLS")
    broker = authority.issue_cert(*dict.fromkeys(hosts))
    # With a name of its own: Python 3.13 refuses a certificate that has no alternative name.
    client = authority.issue_cert("client", common_name="client")
    _write(folder / BROKER, broker.private_key_and_cert_chain_pem)
    _write(folder / CLIENT, client.private_key_and_cert_chain_pem)
    _write(folder / AUTHORITY, authority.cert_pem)


def _write(file: Path, pem: Any) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as out:
        out.write(pem.bytes())
