"""What pyproject.toml alone cannot say: metadata that needs the address of the repository, and compiled modules.

The address is stated once, as ``REPOSITORY`` in pyproject.toml. Relative links of README.md lead nowhere on a package
index, so they become links into the repository, at the tag of the release. Without an address an image is left out, and
the text of a link remains.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
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


#: mypyc takes the settings of mypy from the folder it works in, so it works in one without any.
_COMPILE: Final = """
import sys
from mypyc.build import mypycify
from setuptools import setup
modules = mypycify(["--ignore-missing-imports", *sys.argv[1:]], debug_level="0")
setup(name="compiled", ext_modules=modules, script_args=["build_ext", "--build-lib", "compiled"])
"""


class CompiledModules(BuildHookInterface[BuilderConfig]):
    """Adds ``modules`` to the wheel as mypyc compiles them, beside their sources.

    (hatch-mypyc does so for projects with one folder of packages; here are five.)
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._made = TemporaryDirectory()
        place, modules = Path(self._made.name), [Path(each) for each in self.config["modules"]]
        for top in {each.parts[:2] for each in modules}:
            shutil.copytree(Path(self.root, *top), place.joinpath(*top))
        done = subprocess.run(
            [sys.executable, "-c", _COMPILE, *map(str, modules)],
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise RuntimeError(f"mypyc could not compile:\n{done.stdout}")
        compiled = place / "compiled"
        build_data["force_include"].update(
            {str(each): str(each.relative_to(compiled)) for each in compiled.rglob("*.*")}
        )
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._made.cleanup()


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
