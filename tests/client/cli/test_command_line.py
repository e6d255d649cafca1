"""The command line: arguments, errors, signals, and completion in shells."""

import ast
import asyncio
import json
import re
import shutil
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import barnabas_client
from barnabas_client.cli import main
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command
from barnabas_client.cli.command_line import CommandLine
from barnabas_client.cli.commands import COMMAND_LINE
from barnabas_client.cli.completion import walk
from barnabas_client.cli.output import Output
from barnabas_client.config import ClientConfig, ConsumerConfig
from barnabas_client.logs import logger
from barnabas_client.producer.config import ProducerConfig
from barnabas_pipeline.cli import COMMAND_LINE as PIPELINE
from barnabas_protocol.records import iteration
from tests.client.cli.conftest import PATIENCE, Cli
from tests.client.real_broker import ONLY_BARNABAS
from tests.lots import in_lots

EVERY = COMMAND_LINE.every_command()
SETTINGS = {
    name for config in (ClientConfig, ConsumerConfig, ProducerConfig) for name in config.TYPES if "_" in name
} | {"timeout_ms"}


@in_lots("command", EVERY)
def test_every_command_has_help_and_something_to_run(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(command.run)
    assert main([*command.path, "--help"]) == 0
    assert "usage: barnabas" in capsys.readouterr().out


def test_the_brokers_commands_are_found() -> None:
    assert {("dump", "log"), ("log", "check")} <= {command.path for command in EVERY}


def test_invalid_command_lines_are_reported_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, why in (
        ([], "barnabas: the following arguments are required: COMMAND (see barnabas --help)"),
        (["topics"], "barnabas: the following arguments are required: COMMAND (see barnabas topics --help)"),
        (["topics", "create"], "barnabas: the following arguments are required: TOPIC (see barnabas topics create --h"),
        (["topics", "list", "-b", ":1"], "barnabas: --bootstrap-servers has ':1'"),
        (["ping", "-b", "host:x"], "barnabas: --bootstrap-servers has 'host:x'"),
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
            "To do: check that a broker listens there (127.0.0.1:1 is from --bootstrap-servers)\n"
        )


async def test_bootstrap_servers_of_option_and_environment(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await cli("ping")).out.startswith(f"{cli.address}: broker 1 of 1, cluster ")
    await cli("ping", "-b", "127.0.0.1:1", status=1)
    assert (await cli("-b", cli.address, "ping", "--json")).json[0]["error"] is None
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    await cli("ping", status=1)
    assert (await cli("ping", "-b", cli.address)).err == ""
    half = await cli("ping", "-b", f"{cli.address},127.0.0.1:1", "--json", status=1)
    assert [one["error"] is None for one in half.json] == [True, False]
    assert "Connection refused" in (await cli("ping", "--wait", "150ms", status=1)).err


def test_options_of_all_commands_stand_before_between_and_after_the_words() -> None:
    for words in (
        ["-b", "h:1", "--timeout", "3s", "--json", "topics", "list", "--internal"],
        ["topics", "-b", "h:1", "--timeout", "3s", "--json", "list", "--internal"],
        ["topics", "list", "--internal", "-b", "h:1", "--timeout", "3s", "--json"],
        ["-b", "h:2", "topics", "--timeout", "3s", "list", "--json", "--internal", "-b", "h:1"],
    ):
        read = COMMAND_LINE.parse(words)
        assert (read.bootstrap, read.timeout, read.json, read.internal) == ("h:1", 3.0, True, True), words
    repeated = PIPELINE.parse(["-o", "a=1", "lag", "g", "-o", "b=2"])
    assert repeated.options == [("a", "1"), ("b", "2")]


@pytest.mark.slow
def test_options_of_all_commands_stand_anywhere_in_each_command() -> None:
    for command in EVERY:
        for at in range(len(command.path) + 1):
            with pytest.raises(SystemExit) as leaving:
                COMMAND_LINE.parse([*command.path[:at], "--json", *command.path[at:], "--help"])
            assert leaving.value.code == 0, command.path


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("topic list", "unknown command 'topic', did you mean topics? (see barnabas --help)"),
        ("topics lst", "unknown command 'topics lst', did you mean list? (see barnabas topics --help)"),
        (
            "list",
            "unknown command 'list', did you mean topics list or groups list or transactions list or users list or "
            "acls list or quotas list or client-metrics list? (see barnabas --help)",
        ),
        (
            "groups xyz",
            "unknown command 'groups xyz': the commands are list, describe, alter, explain, doctor, watch, ",
        ),
        (
            "consume t --from-begining",
            "unknown option --from-begining, did you mean --from-beginning? (see barnabas con",
        ),
        ("groups reset-offsets g --to-earlist", "unknown option --to-earlist, did you mean --to-earliest?"),
        (
            "users add u --password P",
            "unknown option --password, did you mean --password-file? (see barnabas users add",
        ),
        ("--jsn topics list", "unknown option --jsn, did you mean --json? (see barnabas --help)"),
        ("topics --timout 5s list", "unknown option --timout, did you mean --timeout? (see barnabas topics --help)"),
        ("produce t f --xyz=1", "unknown option --xyz (see barnabas produce --help)"),
        (
            "produce t -z gzp",
            "argument -z/--compression: 'gzp' is not one of none, gzip, snappy, lz4, zstd, did you me",
        ),
        ("consume t u", "unexpected argument 'u' (see barnabas consume --help)"),
        ("consume t -x", "unexpected argument '-x' (see barnabas consume --help)"),
        ("groups list --state foo", "argument --state: 'foo' is not one of PreparingRebalance, CompletingRebalance, "),
        ("groups list --state stabel", "argument --state: 'stabel' is not one of "),
        ("groups list --type clasic", "argument --type: 'clasic' is not one of classic, consumer, share, streams, did"),
    ],
)
def test_what_was_probably_meant_is_suggested(words: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"barnabas: {why}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("options", [[], ["-b", "broker:9092"], ["--json", "--bootstrap-servers=broker:9092"]])
def test_a_command_does_not_load_those_of_other_packages(options: list[str]) -> None:
    """They belong to the broker, whose import takes as long as the rest of the program."""

    def plugins() -> list[Command]:
        raise AssertionError("loaded")

    line = replace(COMMAND_LINE, plugins=plugins)
    assert line.parse([*options, "topics", "list"]).command.path == ("topics", "list")


def test_ctrl_c_while_commands_are_loaded_is_no_traceback() -> None:
    def plugins() -> list[Command]:
        raise KeyboardInterrupt

    assert replace(COMMAND_LINE, plugins=plugins).run(["dev"]) == 130


def test_values_that_look_like_options_are_no_unknown_options() -> None:
    read = COMMAND_LINE.parse(["produce", "t", "-H", "a=--b", "--null=--x", "--", "--file"])
    assert (read.headers, read.null, read.file) == ([("a", "--b")], "--x", "--file")
    read = COMMAND_LINE.parse(["produce", "t", "-K", ":", "file", "--json"])
    assert (read.topic, read.file, read.json) == ("t", "file", True)
    assert COMMAND_LINE.parse(["consume", "t", "-o", "-5", "--partition", "3", "--max=2"]).partitions == [3]


def test_errors_name_options_of_the_program_and_no_settings_of_the_library() -> None:
    """Every text of the library with advice is reworded; what is left names no setting and no method."""
    texts = [text for file in Path(barnabas_client.__file__).parent.rglob("*.py") for text in advices(file)]
    assert len(texts) > 30
    for text in texts:
        advice = for_command_line(text).partition("To do: ")[2]
        assert not [name for name in SETTINGS if re.search(rf"\b{name}\b", advice)], text
        assert "()" not in advice
    assert for_command_line("no metadata within 5 s. To do: check the brokers, or raise request_timeout_ms") == (
        "no metadata within 5 s. To do: check the brokers, or raise --timeout"
    )
    assert for_command_line("x within delivery_timeout_ms (5 ms). To do: seek() over it") == "x within --timeout (5 ms)"


def test_warnings_of_the_library_are_lines_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    def run(arguments: Namespace, output: Output) -> int:
        why = "no answer. To do: check the broker, or raise request_timeout_ms"
        logger("barnabas_client.network").warning("no metadata", node=1, reason=why)
        logger("barnabas_client.producer.sender").warning(
            "records were not delivered", reason="reported by the command"
        )
        return 0

    command = Command(
        path=("go",), help="go", add_arguments=lambda to: None, run=run, reports=("barnabas_client.producer",)
    )
    program = CommandLine(name="program", description="Test.", commands=[command], add_options=lambda to: None)
    assert program.run(["go"]) == 0
    assert capsys.readouterr().err == (
        "program: warning: no metadata (node 1): no answer. To do: check the broker, or raise --timeout\n"
    )


@pytest.mark.parametrize(
    ("argv", "built"), [(["go", "x"], ["go"]), (["--json", "go", "x"], ["go"]), (["-h", "go"], None)]
)
def test_a_command_is_parsed_without_the_parsers_of_the_others(argv: list[str], built: list[str] | None) -> None:
    """Making all of them takes longer than any command that asks a broker for something."""
    made: list[str] = []

    def command(name: str) -> Command:
        def add_arguments(to: ArgumentParser) -> None:
            made.append(name)
            to.add_argument("word")

        return Command(path=(name,), help=name, add_arguments=add_arguments, run=lambda arguments, output: 0)

    commands = [command("go"), command("stay")]
    program = CommandLine(name="program", description="Test.", commands=commands, add_options=lambda to: None)
    assert program.run(argv) == 0
    assert made == (built or ["go", "stay"])


def advices(file: Path) -> Iterator[str]:
    """The string literals of a module that say what to do; expressions inside of them are "?"."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "?" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if ". To do: " in text and file.parent.name != "cli":
            yield text


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


def test_the_version_says_whether_the_codec_is_compiled(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert re.fullmatch(r"barnabas \S+\n", capsys.readouterr().out)
    assert main(["version", "--verbose", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["records"] == ("interpreted" if iteration.__file__.endswith(".py") else "compiled")
    assert {"python", "uvloop", "crc32c"} <= set(found)
