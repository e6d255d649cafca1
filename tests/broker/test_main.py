"""The `broker` command as a person starts it: one line when it is up, one line when it cannot, and an exit status."""

import asyncio
import json
import os
import re
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas_broker import __main__
from barnabas_broker.cluster.local import NAME as METADATA_JOURNAL
from barnabas_broker.sockets import program_on
from barnabas_client import Admin, NewTopic, Producer
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.needs import LINUX
from tests.sampling import slow
from tests.wire import PATIENCE, Wire

pytestmark = pytest.mark.programs


class Command:
    """A broker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, *arguments: str, cwd: Path | None = None, shell: str | None = None) -> "Command":
        """Start a broker; `shell` is what a shell does before, with the command as its arguments."""
        process = await asyncio.create_subprocess_exec(
            *(() if shell is None else ("sh", "-c", shell, "sh")),
            sys.executable,
            "-m",
            "barnabas_broker",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=cwd,
            env={key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")},
        )
        return cls(process)

    async def port(self) -> int:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = (await self.process.stdout.readline()).decode()
        found = re.search(r"listening on 127\.0\.0\.1:(\d+)$", line.strip())
        assert found, line
        return int(found[1])

    async def end(self) -> tuple[int, str]:
        """Exit status and what was said on stderr."""
        async with asyncio.timeout(PATIENCE):
            _, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


@pytest.fixture
async def command(tmp_path: Path) -> AsyncIterator[Command]:
    command = await Command.start("--port", "0", "--data-dir", str(tmp_path / "data"))
    yield command
    if command.process.returncode is None:
        command.process.kill()
        await command.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_until_a_signal(command: Command, number: signal.Signals) -> None:
    async with await Wire.connect(await command.port()) as wire:
        assert (await wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse)).brokers
        command.process.send_signal(number)
        status, err = await command.end()
    assert status == 0, err


@LINUX
async def test_it_may_have_as_many_connections_as_the_system_allows(tmp_path: Path) -> None:
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        command = await Command.start("--port", "0", "--data-dir", str(tmp_path / "data"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    try:
        await command.port()
        assert resource.prlimit(command.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        command.process.kill()
        await command.end()


async def test_a_second_broker_on_the_same_data_is_refused(command: Command, tmp_path: Path) -> None:
    await command.port()
    second = await Command.start("--port", "0", "--data-dir", str(tmp_path / "data"))
    status, err = await second.end()
    assert status == 1
    assert "data" in err
    assert len(err.splitlines()) == 1


async def test_a_busy_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        status, err = await (await Command.start("--port", str(port), "--data-dir", str(tmp_path))).end()
        remedy = f"stop {program_on(port) or 'the program that uses it'}, or choose another port"
    assert status == 1
    assert err == f"broker: cannot listen on 127.0.0.1:{port}: Address already in use; {remedy}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "70000"], "--port 70000"),
        (["--port", "x"], "--port"),
        (["--frobnicate"], "--frobnicate"),
        (["--set", "num.partitions=many"], "num.partitions='many'"),
        (["--set", "nothing"], "key=value"),
        (["--config", "/no/such/file"], "/no/such/file"),
        (["--node-id", "-3"], "node.id='-3'"),
        (["--advertise", "nowhere"], "advertised.listeners='nowhere'"),
        (["--set", "listeners=localhost:9092"], "listeners='localhost:9092': must be NAME://HOST:PORT"),
        (["--cores", "2", "--set", "listeners=PLAINTEXT://127.0.0.1:0"], "leave out listeners"),
        (["--set", "log.dirs=/tmp/one,/tmp/two"], "log.dirs='/tmp/one,/tmp/two': names 2 directories"),
        (["--set", "log.dirs=/tmp/other"], "and log.dirs=/tmp/other are different directories: give one of them"),
        (["--set", "authorizer.class.name=A"], "authorizer.class.name='A'"),
        (["--add-user", "ada"], "give its password in a file, as ada=FILE, or in $BARNABAS_ADD_USER_PASSWORD"),
        (["--add-user", "ada=/no/such/file"], "--add-user ada=/no/such/file: "),
        (["--add-user", "ada=/dev/null"], "--add-user ada: its password is empty"),
        (["--add-user", "=/dev/null"], "must be NAME or NAME=FILE"),
        (["--cores", "2", "--add-user", "ada=/dev/null"], "and --add-user"),
    ],
)
def test_a_bad_flag_is_one_line_and_status_2(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In this process, which takes a hundredth of the time of a program."""
    given = ["--data-dir", str(tmp_path / "data"), *([] if "--port" in arguments else ["--port", "0"]), *arguments]
    monkeypatch.setattr(sys, "argv", ["broker", *given])
    monkeypatch.setattr(__main__, "_run", lambda *_: pytest.fail("a broker starts"))
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    with pytest.raises(SystemExit) as ended:
        __main__.main()
    err = capfd.readouterr().err
    assert ended.value.code == 2, err
    assert said in err
    assert len(err.splitlines()) == 1, err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        slow((["--port", "70000"], "--port 70000: must be from 0 to 65535")),
        # Found while the broker starts.
        (["--port", "0", "--set", "inter.broker.listener.name=IN"], "inter.broker.listener.name='IN': must be one of"),
    ],
)
async def test_a_program_with_a_bad_flag_ends_with_status_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    status, err = await (await Command.start("--data-dir", str(tmp_path / "data"), *arguments)).end()
    assert status == 2, err
    assert said in err
    assert len(err.splitlines()) == 1, err


async def test_an_address_that_cannot_be_had_is_one_line_and_status_1(tmp_path: Path) -> None:
    command = await Command.start("--port", "0", "--host", "no.such.host.invalid", "--data-dir", str(tmp_path))
    status, err = await command.end()
    assert status == 1
    assert re.fullmatch(r"broker: cannot listen on no\.such\.host\.invalid:0: .+\n", err)


async def test_data_of_a_cluster_is_refused_with_status_2(tmp_path: Path) -> None:
    (tmp_path / METADATA_JOURNAL).write_text("")
    etcd = ("--cluster", "etcd://127.0.0.1:1", "--node-id", "1")
    status, err = await (await Command.start("--port", "0", "--data-dir", str(tmp_path), *etcd)).end()
    assert status == 2
    assert "belongs to a single broker: start it without --cluster" in err


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        (
            "meta.properties",
            "version=1\nnode.id=7\ncluster.id=one\n",
            "belongs to node 7, this is node 1. To do: ",
        ),
        slow(("meta.properties", "version=1\nnode.id=1\n", "has no cluster.id. To do: change")),
        slow(("holiday.jpg", "", "has files of another program, such as holiday.jpg")),
    ],
)
async def test_the_data_of_others_is_refused_with_status_2(tmp_path: Path, file: str, content: str, said: str) -> None:
    (tmp_path / file).write_text(content)
    status, err = await (await Command.start("--port", "0", "--data-dir", str(tmp_path))).end()
    assert (status, len(err.splitlines())) == (2, 1), err
    assert said in err


async def test_it_starts_on_a_full_disk_after_a_kill(tmp_path: Path) -> None:
    """No file may grow: the same as a disk without any free space."""
    data = ("--port", "0", "--data-dir", str(tmp_path / "data"))
    command = await Command.start(*data)
    servers = f"127.0.0.1:{await command.port()}"
    async with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        await admin.create_topics([NewTopic("stays", 2), NewTopic("deleted", 2)])
        await producer.send_and_wait("stays", b"record")
        await producer.send_and_wait("deleted", b"record")
        await admin.delete_topics(["deleted"])
    command.process.kill()
    await command.end()
    full = await Command.start(*data, shell='ulimit -f 0 && exec "$@"')
    async with Admin(bootstrap_servers=f"127.0.0.1:{await full.port()}") as admin:
        assert await admin.list_topics() == ["stays"]
        # A thread of the broker removes the files: killed at once, it may not have come to them.
        async with asyncio.timeout(PATIENCE):
            while list((tmp_path / "data").glob("*-delete")):
                await admin.list_topics()
    full.process.kill()
    await full.end()


async def test_it_starts_with_a_stock_file_of_apache_kafka(tmp_path: Path) -> None:
    """Data goes where log.dirs says, the listener for controllers is not opened, and the rest is named."""
    file, data = tmp_path / "server.properties", tmp_path / "kraft-combined-logs"
    with socket.create_server(("127.0.0.1", 0)) as controller:  # its port is in use: opening it would fail
        file.write_text(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
            f"listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{controller.getsockname()[1]}\n"
            "advertised.listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:9093\n"
            "inter.broker.listener.name=PLAINTEXT\ncontroller.listener.names=CONTROLLER\n"
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
            f"log.dirs={data}\nnum.io.threads=8\nlog.retention.hours=168\n"
        )
        command = await Command.start("--config", str(file), cwd=tmp_path)
        await command.port()
        command.process.terminate()
        status, err = await command.end()
    assert status == 0, err
    assert (data / "meta.properties").exists()
    assert sorted(os.listdir(tmp_path)) == ["kraft-combined-logs", "server.properties"]
    assert "broker: num.io.threads: no effect, " in err
    assert "broker: controller.quorum.bootstrap.servers: no effect, " in err
    assert "log.retention.hours" not in err


async def test_there_is_a_line_for_each_listener_and_each_serves(tmp_path: Path) -> None:
    listeners = "listeners=PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0"
    command = await Command.start("--port", "1", "--data-dir", str(tmp_path), "--set", listeners)
    ports = [await command.port(), await command.port()]
    for port in ports:
        async with await Wire.connect(port) as wire:
            answer = await wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse)
            assert [(b.host, b.port) for b in answer.brokers] == [("127.0.0.1", port)]
    command.process.terminate()
    status, err = await command.end()
    assert status == 0, err


async def test_an_unknown_key_is_a_warning(tmp_path: Path) -> None:
    command = await Command.start("--port", "0", "--data-dir", str(tmp_path), "--set", "num.partition=3")
    await command.port()
    command.process.terminate()
    status, err = await command.end()
    assert status == 0
    assert "broker: num.partition: no such configuration key, ignored, did you mean num.partitions?\n" in err


async def test_json_logs_are_one_object_a_line(tmp_path: Path) -> None:
    command = await Command.start("--port", "0", "--data-dir", str(tmp_path), "--log-format", "json")
    await command.port()
    command.process.terminate()
    status, err = await command.end()
    assert status == 0
    assert {json.loads(line)["level"] for line in err.splitlines()} == {"info"}


async def test_first_users_with_a_password_in_a_file_or_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ada"
    file.write_text("lovelace\nsecond line\n")
    monkeypatch.setenv("BARNABAS_ADD_USER_PASSWORD", "builder")
    flags = ["--port", "0", "--data-dir", str(tmp_path / "data"), "--add-user", f"ada={file}", "--add-user", "bob"]
    seen = []
    for _ in range(2):
        broker = await Command.start(*flags)
        async with Admin(bootstrap_servers=f"127.0.0.1:{await broker.port()}") as admin:
            seen.append(await admin.describe_user_scram_credentials())
        broker.process.send_signal(signal.SIGTERM)
        status, err = await broker.end()
        assert status == 0
        assert "lovelace" not in err and "builder" not in err
    assert [one.user for one in seen[0]] == ["ada", "bob"]
    assert seen[0] == seen[1]
    assert err.count("user added") == 0


async def test_a_secret_on_the_command_line_is_a_warning(tmp_path: Path) -> None:
    shown = "listener.name.plaintext.scram-sha-256.sasl.jaas.config=hush"
    broker = await Command.start("--port", "0", "--data-dir", str(tmp_path / "data"), "--set", shown)
    await broker.port()
    broker.process.send_signal(signal.SIGTERM)
    _, err = await broker.end()
    assert "broker: listener.name.plaintext.scram-sha-256.sasl.jaas.config: other users of this machine can see" in err
    assert "hush" not in err
