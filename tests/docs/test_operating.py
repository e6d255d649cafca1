"""docs/operating.md: the unit and the manifests are valid, their flags exist, and the broker writes the log lines."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnabas_broker.__main__ import _parser, read_config
from barnabas_broker.config.keys import ADVERTISED_LISTENERS, NUM_PARTITIONS
from tests.lots import in_lots

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "operating.md").read_text("utf-8")
#: What a unit of a service may have (systemd.unit(5), systemd.service(5), systemd.exec(5), systemd.kill(5)), as far as
#: the page uses it: for machines without systemd.
UNIT_KEYS = {
    "Unit": {"Description", "Wants", "After"},
    "Service": {
        *("Type", "User", "Group", "StateDirectory", "StateDirectoryMode", "ExecStart", "Restart", "RestartSec"),
        *("TimeoutStopSec", "LimitNOFILE", "NoNewPrivileges", "PrivateDevices", "PrivateTmp"),
        *("ProtectHome", "ProtectSystem", "CapabilityBoundingSet", "LockPersonality", "MemoryDenyWriteExecute"),
        *("PrivateUsers", "ProcSubset", "ProtectClock", "ProtectControlGroups", "ProtectHostname", "ProtectKernelLogs"),
        *("ProtectKernelModules", "ProtectKernelTunables", "ProtectProc", "RemoveIPC", "RestrictAddressFamilies"),
        *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "SystemCallArchitectures"),
        *("SystemCallErrorNumber", "SystemCallFilter", "UMask"),
    },
    "Install": {"WantedBy"},
}


def block(language: str) -> str:
    """The only code block in this language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)
    return str(found)


UNIT = block("ini")


class StrictLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """Refuses a key that is there twice, as Kubernetes does."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key is there twice: {keys}"
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        return mapping


def load(kind: str) -> dict[str, Any]:
    """The manifest of this kind."""
    manifest: dict[str, Any]
    (manifest,) = [each for each in yaml.load_all(block("yaml"), StrictLoader) if each["kind"] == kind]
    return manifest


@pytest.fixture
def service() -> dict[str, Any]:
    return load("Service")


@pytest.fixture
def stateful_set() -> dict[str, Any]:
    return load("StatefulSet")


@pytest.fixture(scope="module")
def sources() -> str:
    folders = (ROOT / "broker", ROOT / "explain")
    return "".join(path.read_text("utf-8") for folder in folders for path in folder.rglob("*.py"))


def test_the_unit_has_only_what_systemd_knows() -> None:
    section = ""
    seen: set[tuple[str, str]] = set()
    for line in filter(None, UNIT.splitlines()):
        if header := re.fullmatch(r"\[(\w+)\]", line):
            section = header[1]
            continue
        key, equals, value = line.partition("=")
        assert equals
        assert value or key == "CapabilityBoundingSet"  # none
        assert key in UNIT_KEYS[section], line
        assert (section, key) not in seen, line
        seen.add((section, key))
    assert {section for section, _ in seen} == set(UNIT_KEYS)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    # The program must exist; nothing else depends on this machine.
    unit = tmp_path / "barnabas.service"
    unit.write_text(re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT, flags=re.M))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_rates_the_unit_as_hardened(tmp_path: Path) -> None:
    unit = tmp_path / "barnabas.service"
    unit.write_text(UNIT)
    command = ["systemd-analyze", "security", "--offline=true", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if "unrecognized option" in done.stderr:
        pytest.skip("needs systemd 250")
    found = re.search(r"Overall exposure level for barnabas.service: ([\d.]+)", done.stdout)
    assert found
    assert float(found[1]) < 2.5


@pytest.mark.programs
@pytest.mark.skipif(not shutil.which("systemd-analyze") or not shutil.which("strace"), reason="needs both programs")
def test_the_broker_needs_only_the_system_calls_of_the_unit(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    broker = [
        sys.executable,
        "-m",
        "barnabas_broker",
        "--port",
        "0",
        "--http-port",
        "0",
        "--data-dir",
        str(tmp_path / "d"),
    ]
    command = ["strace", "-f", "-qq", "-o", str(trace), *broker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if not (line := process.stdout.readline()):
            pytest.skip(f"strace cannot trace: {process.communicate()[1]}")
        address = line.strip().rpartition(" ")[2]
        commands = [["produce", "orders"], ["consume", "orders", "-g", "readers", "--from-beginning", "-e"]]
        for words in commands:
            client = [sys.executable, "-m", "barnabas_client.cli", *words, "-b", address]
            subprocess.run(client, input="one\n", text=True, stdout=subprocess.DEVNULL, check=True, timeout=100)
        traced = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        os.kill(traced, signal.SIGTERM)
        process.communicate(timeout=100)
    called = set(re.findall(r"^\d+ +(?:<\.\.\. )?(\w+)[( ]", trace.read_text("utf-8", "replace"), re.MULTILINE))
    assert {"read", "sendmsg", "fsync"} & called
    assert not called - _system_calls("@system-service") - _system_calls("@default")


def _system_calls(of: str) -> set[str]:
    """The system calls of a set, and of the sets in it."""
    done = subprocess.run(
        ["systemd-analyze", "syscall-filter", of], capture_output=True, text=True, check=True, timeout=60
    )
    lines = [line.strip() for line in done.stdout.splitlines()[1:]]
    sets = [line for line in lines if line.startswith("@")]
    return {line for line in lines if line and line[0] not in "@#"}.union(*map(_system_calls, sets))


def test_the_flags_of_the_unit_exist(tmp_path: Path) -> None:
    found = re.search(r"^ExecStart=/opt/barnabas/bin/broker (.*)$", UNIT, re.M)
    assert found
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=3\n")
    flags = found[1].replace("/etc/barnabas/server.properties", str(properties)).split()
    config, unknown = read_config(_parser().parse_args(flags))
    assert config[NUM_PARTITIONS] == 3
    assert not unknown


def test_the_manifests_have_what_kubernetes_requires(service: dict[str, Any], stateful_set: dict[str, Any]) -> None:
    """The required fields of the API reference, and the references between them."""
    assert (service["apiVersion"], stateful_set["apiVersion"]) == ("v1", "apps/v1")
    spec, pod = stateful_set["spec"], stateful_set["spec"]["template"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert service["spec"]["selector"].items() <= labels.items()
    assert spec["serviceName"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None", "a StatefulSet needs a headless service"
    (container,) = pod["containers"]
    assert container["name"]
    assert container["image"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert {each["name"]: each["port"] for each in service["spec"]["ports"]} == ports
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["port"] in ports
        assert container[probe]["httpGet"]["path"] in ("/healthz", "/readyz")
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"]
    assert claim["spec"]["resources"]["requests"]["storage"]
    assert [each["name"] for each in container["volumeMounts"]] == [claim["metadata"]["name"]]
    assert all(isinstance(each, str) for each in container["args"])
    assert all(isinstance(each["value"], str) for each in container["env"] if "value" in each)


def test_the_flags_of_the_pod_exist(stateful_set: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    for each in container["env"]:
        monkeypatch.setenv(each["name"], each.get("value", "barnabas-0"))
    flags = [flag.replace("$(POD_NAME)", "barnabas-0") for flag in container["args"]]
    arguments = _parser().parse_args(flags)
    config, unknown = read_config(arguments)
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert (arguments.port, arguments.http_port) == (ports["kafka"], ports["http"])
    assert config.given[ADVERTISED_LISTENERS.name] == "barnabas-0.barnabas:9092"
    assert config[NUM_PARTITIONS] == 3
    assert not unknown


def explained() -> list[str]:
    """The log lines of the table."""
    table = PAGE.partition("| line | level | meaning |")[2]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    return [line for row in rows for line in re.findall(r"`([^`]+)`", row)]


@in_lots("line", explained())
def test_the_broker_writes_the_lines_that_are_explained(line: str, sources: str) -> None:
    verb, _, what = line.partition(" ")
    by_the_runtime = f'"{verb} {{shard.what}}"' in sources and f'what = "{what}"' in sources
    assert f'"{line}' in sources or by_the_runtime


def test_the_links_within_the_page_have_a_heading() -> None:
    anchors = {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)$", PAGE, re.M)}
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= anchors
