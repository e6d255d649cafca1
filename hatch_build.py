"""Metadata of the package that needs the address of the repository: links, and the README of package indexes.

The address is stated once, as ``REPOSITORY`` in pyproject.toml. Relative links of README.md lead nowhere on a package
index, so they become links into the repository, at the tag of the release. Without an address an image is left out, and
the text of a link remains.
"""

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: Of an image, and of a link: its text, its target. Addresses of elsewhere and of the page itself are as they are.
_IMAGE: Final = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)]*)\)")
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)]*)\)")


class RepositoryMetadata(MetadataHookInterface):
    """Sets ``readme`` and ``urls``."""

    def update(self, metadata: dict[str, Any]) -> None:
        address, version = self.config["REPOSITORY"], metadata["version"]
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": readme(text, address, version)}
        metadata["urls"] = urls(address)


def readme(text: str, address: str, version: str) -> str:
    """Return the README of package indexes."""
    if not address:
        return _LINK.sub(r"\1", _IMAGE.sub("", text))
    text = _IMAGE.sub(rf"![\1]({address}/raw/v{version}/\2)", text)
    return _LINK.sub(rf"[\1]({address}/blob/v{version}/\2)", text)


def urls(address: str) -> dict[str, str]:
    """Return the links beside the README on package indexes."""
    if not address:
        return {}
    return {
        "Repository": address,
        "Documentation": f"{address}/tree/main/docs",
        "Changes": f"{address}/blob/main/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }
