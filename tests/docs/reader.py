"""A reader of the README: a copy of the repository as a clone is, and terminals in which blocks are pasted.

Nothing is prepared that a reader lacks: the terminals have a bare environment, the copy has no `.venv` but the one that
`make run` makes.
"""

import importlib.metadata
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

from packaging.requirements import Requirement

from tests.copies import copy_tree
from tests.interop import process

ROOT: Final = Path(__file__).parents[2]
#: Seconds to wait for an output.
PATIENCE: Final = 60.0
_NOT_IN_A_CLONE: Final = (".*", "__pycache__", "barnabas-data", "build", "dist")
_PROMPT: Final = re.compile(r"(?:\(\.venv\) )?<(\d+)>% ")

# Runs bash on a terminal of its own: the terminal turns ^C into a signal. The arguments are the folder, the environment
# and the process whose network is used: 0 for a new one, -1 for the machine's.
_TERMINAL: Final = f"""
{process.HEAR_CTRL_C}
import ctypes, fcntl, json, os, pty, socket, struct, sys
folder, environment, network = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
NEW_NETWORK = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
if network > 0:
    if libc.setns(os.open(f"/proc/{{network}}/ns/net", os.O_RDONLY), NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")
elif network == 0:
    if libc.unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket() as one:  # ip link set lo up
        fcntl.ioctl(one, 0x8914, struct.pack("16sh14x", b"lo", 1))
os.chdir(folder)
os.environ.clear()
os.environ.update(environment)
shell = ["bash", "--noprofile", "--norc", "--noediting", "-i"]
raise SystemExit(os.waitstatus_to_exitcode(pty.spawn(shell)))
"""


class Block(NamedTuple):
    """A block to paste, its expected output, and whether it runs until Ctrl-C."""

    text: str
    prints: str
    endless: bool


def blocks(page: str) -> list[Block]:
    """The shell blocks of a page, in their order, with the ``text`` block that follows one."""
    found = re.finditer(r"^```sh( ctrl-c)?\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", page, re.MULTILINE | re.DOTALL)
    return [Block(block[2], block[3] or "", block[1] is not None) for block in found]


def comparable(output: str) -> str:
    """An output without colours, and without what differs from run to run: times, durations, process ids, widths of
    columns."""
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)  # bold, colours
    output = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME", output.replace("\r\n", "\n"))
    output = re.sub(r"\b\d+(\.\d+)? (ms|s)\b", "DURATION", output)
    output = re.sub(r"\bbarnabas-(producer-)?\d+\b", r"barnabas-\1PROCESS", output)
    return re.sub(r" +", " ", re.sub(r" +$", "", output, flags=re.MULTILINE)).strip()


class Terminal:
    """An interactive bash on a terminal of its own.

    Args:
        folder: where it starts.
        home: the user's home.
        network: as in the program above.
    """

    def __init__(self, folder: Path, home: Path, network: int) -> None:
        path = os.pathsep.join([str(Path(sys.base_prefix) / "bin"), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"])
        environment = {"HOME": str(home), "PATH": path, "TERM": "xterm", "LANG": "C.UTF-8", "PS1": "<$?>% ", "PS2": ""}
        if "PIP_INDEX_URL" in os.environ:
            environment["PIP_INDEX_URL"] = os.environ["PIP_INDEX_URL"]
        self._process = process.spawn(
            [sys.executable, "-c", _TERMINAL, str(folder), json.dumps(environment), str(network)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        self.seen = ""
        self.until(_PROMPT)
        self.paste("stty -echo\n")
        self.until(_PROMPT)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        process.end(self._process, 0)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def paste(self, text: str) -> None:
        self.seen = ""
        os.write(self._input, text.encode())

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._input, b"\x03")

    def until(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Read up to `pattern`; what was read since the last paste is in `seen`."""
        deadline = time.monotonic() + PATIENCE
        while (found := pattern.search(self.seen)) is None:
            ready, _, _ = select.select([self._output], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._output, 65536) if ready else b""
            assert data, f"{pattern.pattern!r} did not appear in:\n{self.seen}"
            self.seen += data.decode()
        return found

    def run(self, block: Block) -> tuple[str, int]:
        """Paste a block and wait for its end; its output, and the status of its last command.

        One without end is interrupted when it has printed what the page shows.
        """
        self.paste(block.text)
        if block.endless:
            lines = [re.escape(line) for line in block.prints.splitlines()]
            self.until(re.compile(r"\s*".join(lines)))
            self.interrupt()
        # Each line of a block gets a prompt: the last one comes after the last line.
        self.paste_marker()
        end = self.until(re.compile(_PROMPT.pattern + r"<<end>>\r?\n"))
        return _PROMPT.sub("", self.seen[: end.start()]), int(end[1])

    def paste_marker(self) -> None:
        """Paste a command that marks the end of the one before, and keeps its status in the prompt before it."""
        os.write(self._input, b"echo '<<end>>'\n")


def clone(folder: Path) -> Path:
    """Copy the repository without what a clone does not have."""
    return copy_tree(ROOT, folder, shutil.ignore_patterns(*_NOT_IN_A_CLONE))


def install(folder: Path) -> None:
    """Do in less than a second what `make run` does first: `.venv` with the package, and with what it needs only.

    Distributions are links to those of the interpreter that runs the tests.
    """
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, timeout=PATIENCE)
    (packages,) = venv.glob("lib/python*/site-packages")
    for distribution in _needed("barnabas", "http"):
        for top in {file.parts[0] for file in distribution.files or () if ".." not in file.parts}:
            there = Path(str(distribution.locate_file(top)))
            if top.endswith((".pth", "__pycache__")) or (packages / top).exists() or not there.exists():
                continue
            (packages / top).symlink_to(there)
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    sources = project["tool"]["hatch"]["build"]["dev-mode-dirs"]
    (packages / "barnabas.pth").write_text("".join(f"{folder / source}\n" for source in sources))
    for name, target in project["project"]["scripts"].items():
        module, _, function = target.partition(":")
        script = venv / "bin" / name
        script.write_text(f"#!{venv}/bin/python\nfrom {module} import {function}\n{function}()\n")
        script.chmod(0o755)
    (venv / ".run").touch()


def _needed(name: str, extra: str = "") -> Iterator[importlib.metadata.Distribution]:
    """A distribution and what it requires, with one of its extras."""
    distribution = importlib.metadata.distribution(name)
    yield distribution
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield from _needed(requirement.name)
