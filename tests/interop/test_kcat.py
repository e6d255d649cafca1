"""kcat: list the metadata, write records, read them, and read them as a group."""

import json
import shutil

import pytest

from tests.interop import process
from tests.interop.clients.base import Admin
from tests.interop.server import Server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not on the PATH: apt install kcat"),
]


def _kcat(server: Server, *args: str, stdin: str | None = None) -> str:
    done = process.run(["kcat", "-b", server.bootstrap_servers, *args], 60, stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_write_and_read(server: Server, operator: Admin, fresh: str) -> None:
    operator.create_topic(fresh, 3)
    lines = [f"k{n}:v{n}" for n in range(100)]
    how = ("-K", ":", "-z", "zstd", "-X", "enable.idempotence=true", "-H", "a=b")
    _kcat(server, "-P", "-t", fresh, *how, stdin="".join(f"{line}\n" for line in lines))

    (topic,) = json.loads(_kcat(server, "-L", "-J", "-t", fresh))["topics"]
    assert topic["topic"] == fresh
    assert sorted(one["partition"] for one in topic["partitions"]) == [0, 1, 2]

    read = _kcat(server, "-C", "-t", fresh, "-o", "beginning", "-e", "-q", "-f", "%k:%s %h\n")
    assert sorted(read.splitlines()) == sorted(f"{line} a=b" for line in lines)

    ends = _kcat(server, "-Q", *(word for number in range(3) for word in ("-t", f"{fresh}:{number}:-1")))
    assert sum(int(line.rpartition(" ")[2]) for line in ends.splitlines()) == 100


def test_a_group(server: Server, operator: Admin, fresh: str) -> None:
    operator.create_topic(fresh, 3)
    _kcat(server, "-P", "-t", fresh, stdin="".join(f"{n}\n" for n in range(20)))
    group = ("-X", "auto.offset.reset=earliest", "-e", "-q", "-G", fresh, fresh)
    assert sorted(map(int, _kcat(server, *group).splitlines())) == list(range(20))
    _kcat(server, "-P", "-t", fresh, stdin="20\n")
    assert _kcat(server, *group) == "20\n"  # what was read before is committed
