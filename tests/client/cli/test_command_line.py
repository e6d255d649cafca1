"""The command line: arguments, errors, signals, and completion in shells."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas_client.cli import main, plugins
from barnabas_client.cli.command import Command
from barnabas_client.cli.commands import COMMAND_LINE
from barnabas_client.cli.completion import walk
from tests.client.cli.conftest import PATIENCE, Cli
from tests.client.real_broker import ONLY_BARNABAS

EVERY = COMMAND_LINE.every_command()


@pytest.mark.parametrize("command", EVERY, ids=lambda command: " ".join(command.path))
def test_every_command_has_help_and_something_to_run(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(command.run)
    assert main([*command.path, "--help"]) == 0
    assert "usage: barnabas" in capsys.readouterr().out


def test_the_brokers_commands_are_found() -> None:
    assert {("dump", "log"), ("log", "check")} <= {command.path for command in EVERY}
    assert plugins.find_explainer() is not None


def test_invalid_command_lines_are_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, why in (
        ([], "barnabas: the following arguments are required: COMMAND (see barnabas --help)"),
        (["topics"], "barnabas: the following arguments are required: COMMAND (see barnabas topics --help)"),
        (["topics", "create"], "barnabas: the following arguments are required: TOPIC (see barnabas topics create --h"),
        (["topics", "list", "-b", ":1"], "barnabas: argument -b/--bootstrap-servers: bootstrap_servers has ':1'"),
        (["ping", "-b", "host:x"], "barnabas: argument -b/--bootstrap-servers: bootstrap_servers has 'host:x'"),
        (["bench", "consume"], "barnabas: bench consume reads an existing topic: name it with --topic"),
        (["topics", "create", "t", "-p", "0"], "barnabas: argument -p/--partitions: must be a number of at least 1"),
        (["topics", "create", "t", "-c", "a"], "barnabas: argument -c/--config: 'a' is not name=value"),
        (["consume", "t", "--since", "soon"], "barnabas: argument --since: 'soon' is neither a duration, such as 10m"),
        (["ping", "--timeout", "0"], "barnabas: argument --timeout: '0' is not a time"),
    ):  # fmt: skip
        assert main(arguments) == 2
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.startswith(why)
        assert printed.err.count("\n") == 1


def test_an_unreachable_broker_is_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["topics", "list"], ["groups", "describe", "g"], ["consume", "t"], ["consume", "t", "-g", "g"]):
        assert main([*arguments, "-b", "127.0.0.1:1", "--timeout", "2"]) == 1
        assert capsys.readouterr().err == (
            "barnabas: no broker could be asked about the cluster: cannot connect to 127.0.0.1:1: Connection refused. "
            "To do: check that a broker listens there\n"
        )


async def test_bootstrap_servers_of_option_and_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await cli("ping")).out.startswith(f"{cli.address}: broker 1 of 1, cluster ")
    await cli("ping", "-b", "127.0.0.1:1", status=1)
    assert (await cli("-b", cli.address, "ping", "--json")).json[0]["error"] is None
    monkeypatch.setenv("BARNABAS_BOOTSTRAP", "127.0.0.1:1")
    await cli("ping", status=1)
    assert (await cli("ping", "-b", cli.address)).err == ""
    half = await cli("ping", "-b", f"{cli.address},127.0.0.1:1", "--json", status=1)
    assert [one["error"] is None for one in half.json] == [True, False]
    assert "Connection refused" in (await cli("ping", "--wait", "150ms", status=1)).err


@ONLY_BARNABAS
async def test_bench_measures_rates_and_deletes_its_topic(cli: Cli) -> None:
    results = (await cli("bench", "-n", "2000", "-s", "50", "--json")).json
    assert [(one["what"], one["records"], one["bytes"]) for one in results] == [
        ("produce", 2000, 100_000),
        ("consume", 2000, 100_000),
    ]
    assert (await cli("topics", "list")).out == ""
    await cli("topics", "create", "t")
    assert (await cli("bench", "produce", "-n", "100", "-t", "t")).out.startswith(
        "produce: 100 records, 10,000 bytes in "
    )
    assert (await cli("bench", "consume", "-t", "t")).out.startswith("consume: 100 records")
    await cli("topics", "create", "empty")
    assert "empty is empty" in (await cli("bench", "consume", "-t", "empty", status=1)).err


async def test_termination_ends_a_command_as_control_c_does(cli: Cli, numbers: None) -> None:
    process = await cli.start("consume", "t", "-g", "g", "--from-beginning")
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        await process.stdout.readline()
        process.terminate()
        _, err = await process.communicate()
    assert (process.returncode, err) == (143, b"")
    assert (await cli("groups", "list", "--state", "Empty")).lines == ["g"]


def test_every_command_is_completed() -> None:
    places = {place.path: place for place in walk(COMMAND_LINE.parser(EVERY))}
    assert set(places[""].commands) >= {"topics", "produce", "consume", "groups", "dump", "log", "bench", "ping"}
    assert places["groups"].commands["explain"] == "explain why a group rebalanced, and what to do about it"
    assert "--to-earliest" in places["groups reset-offsets"].options
    assert places["produce"].choices["--compression"] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert {"--topic", "--timeout"} <= places["bench"].values
    assert places["completion"].choices[""] == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    checked = subprocess.run([found, "-n", str(script)], capture_output=True, text=True, timeout=PATIENCE)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "script"
    lines = [capsys.readouterr().out]
    typed = [
        ("topics li", "list"),
        ("-b host:1 groups reset-offsets g --to-e", "--to-earliest"),
        ("produce t -z ls", ""),
        ("produce t -z l", "lz4"),
        ("dump lo", "log"),
        ("consume t --since ", ""),
        ("completion f", "fish"),
    ]
    for words, _ in typed:
        last = '""' if words.endswith(" ") else ""
        lines.append(f"COMP_WORDS=(barnabas {words}{last})")
        lines.append('COMP_CWORD=$((${#COMP_WORDS[@]}-1)); COMPREPLY=(); _barnabas; echo "${COMPREPLY[*]}"')
    script.write_text("\n".join(lines))
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.splitlines() == [completed for _, completed in typed]


def test_every_command_is_found_without_optional_dependencies() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('rich', 'aiohttp', 'aetcd', 'pyspark', 'matplotlib')));"
        "from barnabas_client.cli import main; sys.exit(main(['--help']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    for head in {command.path[0] for command in EVERY}:
        assert f"\n    {head} " in done.stdout
