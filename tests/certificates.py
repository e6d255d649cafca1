"""Certificates for tests, as PEM files: an authority, a broker, clients."""

from pathlib import Path
from typing import Final

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

#: The names of the broker in its certificate.
NAMES: Final = ("localhost", "127.0.0.1")


class Authority:
    """An authority that issues certificates, and the files with them.

    Args:
        folder: where the files are written.
        name: of the authority's files.
    """

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder = folder
        self.ca = trustme.CA(organization_name=f"Authority {name}")
        self.trust = folder / f"{name}.pem"
        self.ca.cert_pem.write_to_path(str(self.trust))

    def issue(
        self,
        file: str,
        *names: str,
        common_name: str | None = None,
        password: str = "",
        unit: str | None = None,
        key_type: trustme.KeyType = trustme.KeyType.ECDSA,
    ) -> Path:
        """A file with a private key, its certificate and the chain.

        Args:
            file: its name without the ending.
            names: host names, addresses or mail addresses; those of the broker if there are none.
            common_name: the CN of the subject.
            password: encrypts the key.
            unit: the OU of the subject; another one for each certificate if None.
            key_type: ECDSA with the curve P-256, or RSA with 2048 bits.
        """
        leaf = self.ca.issue_cert(
            *(names or NAMES),
            common_name=common_name,
            organization_name="Tests",
            organization_unit_name=unit,
            key_type=key_type,
        )
        # In PKCS#8, because Java reads nothing else.
        secret = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        private = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret)
        path = self.folder / f"{file}.pem"
        path.write_bytes(key + b"".join(each.bytes() for each in leaf.cert_chain_pems))
        return path
