"""docs/security.md says what the rows of the handlers say, and its first commands work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas_broker.handlers.table import join
from barnabas_broker.local_etcd import free_port
from tests.docs.reader import blocks, comparable
from tests.docs.security import PAGE, changes, render, table
from tests.interop.process import end, spawn


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == render(), "run: make pages"


def test_the_table_has_each_api() -> None:
    assert len(table().splitlines()) == len(join()) + 2
    assert "| Produce | WRITE on TOPIC; WRITE on TRANSACTIONAL_ID, if a batch is transactional |" in table()


def test_each_line_of_the_audit_log_has_an_api() -> None:
    assert "| `topic created` | CreateTopics, FindCoordinator, Metadata |" in changes()
    assert "|  |" not in changes()


@pytest.mark.programs
def test_from_nothing_to_logins_over_tls_with_acls(tmp_path: Path) -> None:
    start, client, refused = blocks(PAGE.read_text("utf-8"))[:3]
    port = str(free_port())
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "LANG": "C.UTF-8"}
    log = (tmp_path / "broker.log").open("w")
    # The broker takes the place of the shell, so that it ends with it.
    script = f"cd {tmp_path}\n" + start.text.replace("9093", port).replace("\nbroker --", "\nexec broker --")
    broker = spawn(["bash", "-ec", script], subprocess.DEVNULL, subprocess.PIPE, log.fileno(), environment=environment)
    assert broker.stdout is not None
    try:
        while not (line := broker.stdout.readline()).startswith("barnabas: listening"):
            assert line, (tmp_path / "broker.log").read_text()
        for block, status in ((client.text, 0), (f"{client.text}\n{refused.text}", 1)):
            ended = subprocess.run(
                ["bash", "-c", block.replace("9093", port)],
                cwd=tmp_path,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=100,
            )
            assert ended.returncode == status, ended.stdout
        assert ended.stdout.splitlines()[-1] == comparable(refused.prints)
        assert "principal=User:bob" in (tmp_path / "broker.log").read_text()
        assert client.prints == "two chairs\n"
    finally:
        end(broker, 10)
        broker.stdout.close()
        log.close()
