"""Sockets that a broker listens on: a port in use names the program that has it."""

import os
from pathlib import Path

import pytest

from barnabas_broker.errors import BrokerError
from barnabas_broker.sockets import bind, listen, program_on
from tests.needs import LINUX


@LINUX
def test_a_port_in_use_names_the_program() -> None:
    with bind("127.0.0.1", 0) as first:
        first.listen()
        port = first.getsockname()[1]
        name = Path("/proc/self/comm").read_text().strip()
        with pytest.raises(BrokerError) as raised:
            bind("127.0.0.1", port)
    expected = f"cannot listen on 127.0.0.1:{port}: Address already in use; stop {name} (pid {os.getpid()}), or choose"
    assert str(raised.value).startswith(expected)


@LINUX
def test_two_programs_that_start_at_once_bind_the_same_port() -> None:
    """Linux lets both bind: the second one that listens is refused."""
    with bind("127.0.0.1", 0) as first, bind("127.0.0.1", first.getsockname()[1]) as second:
        listen(first, 1)
        port = first.getsockname()[1]
        with pytest.raises(BrokerError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use; stop "):
            listen(second, 1)


def test_no_program_listens_on_a_port_that_is_only_bound() -> None:
    with bind("127.0.0.1", 0) as bound:
        assert program_on(bound.getsockname()[1]) is None


def test_a_port_whose_program_is_not_shown(tmp_path: Path) -> None:
    """Another user's: its socket is in the table, its descriptors cannot be read."""
    (tmp_path / "net").mkdir()
    line = "   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0\n"
    (tmp_path / "net" / "tcp").write_text(f"  sl  local_address rem_address   st ...\n{line}")
    (tmp_path / "1").mkdir()
    assert program_on(0x2384, tmp_path) is None


def test_a_name_that_would_act_on_a_terminal_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    line = "   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 100 0\n"
    (tmp_path / "net" / "tcp").write_text(f"  sl  local_address rem_address   st ...\n{line}")
    (tmp_path / "77" / "fd").mkdir(parents=True)
    (tmp_path / "77" / "fd" / "5").symlink_to("socket:[4711]")
    (tmp_path / "77" / "comm").write_text("evil\x1b[2J\n")
    assert program_on(0x2384, tmp_path) == r"evil\x1b[2J (pid 77)"


def test_an_address_of_another_machine() -> None:
    with pytest.raises(BrokerError, match=r"cannot listen on 203\.0\.113\.1:0: .*"):
        bind("203.0.113.1", 0)
