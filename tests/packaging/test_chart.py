"""The Helm chart: what it renders is what Kubernetes accepts, and brokers start with it and log in to each other."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
import yaml

from barnabas import Admin, Consumer, NewTopic, Producer
from barnabas.errors import TopicAuthorizationFailedError
from barnabas_broker.local_etcd import free_port
from barnabas_broker.security.trial import AUTHORITY, BROKER, issue
from barnabas_protocol.version import VERSION
from tests.cluster.harness import Etcd, eventually
from tests.docs.test_operating import StrictLoader
from tests.interop.process import end, spawn
from tests.needs import missing

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "barnabas"
KUBERNETES: Final = "1.34"
#: Values by what they are for.
CASES: Final[dict[str, dict[str, Any]]] = {
    "one broker": {},
    "three brokers": {"replicas": 3, "etcd": {"mode": "bundled"}},
    "all": {
        "replicas": 5,
        "image": {"pullSecrets": [{"name": "registry"}]},
        "config": {"log.segment.bytes": 1073741824, "log.cleaner.min.cleanable.ratio": 0.5, "min.insync.replicas": 3},
        "init": {"topics": {"orders": {"partitions": 3}}},
        "etcd": {
            "mode": "external",
            "external": {"endpoints": ["a:2379", "b:2379"], "tlsSecret": "etcd-tls", "userSecret": "etcd-user"},
        },
        "tls": {"secret": "tls"},
        "scram": {"secret": "users", "users": ["admin", "ada"]},
        "acls": {"enabled": True, "superUsers": ["User:ops"]},
        "http": {"tokenSecret": "token", "allowHosts": ["barnabas.example"]},
        "persistence": {"storageClass": "fast"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "kafka", "operator": "Exists"}],
        "podAnnotations": {"a": "b"},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
    "certificates": {
        "replicas": 3,
        "etcd": {"mode": "bundled"},
        "tls": {"secret": "tls", "clientAuth": "required"},
        "acls": {"enabled": True, "superUsers": ["User:CN=barnabas"]},
        "affinity": {"nodeAffinity": {}},
    },
}

Objects = dict[tuple[str, str], dict[str, Any]]


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("helm")
    if program is None:
        missing("helm is not installed: go install helm.sh/helm/v3/cmd/helm@latest", on_this_machine=False)
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=60)


def render(values: dict[str, Any]) -> Objects:
    """The objects of a release named `demo` by their kinds and names."""
    given = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    done = helm("template", "demo", str(CHART), "--namespace", "space", f"--kube-version={KUBERNETES}.0", *given)
    assert done.returncode == 0, done.stderr
    found = list(yaml.load_all(done.stdout, StrictLoader))
    objects = {(each["kind"], each["metadata"]["name"]): each for each in found if each is not None}
    assert len(objects) == len([each for each in found if each is not None])
    return objects


def test_the_chart_has_the_version_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["version"] == chart["appVersion"] == VERSION


@pytest.mark.programs
def test_the_chart_is_clean() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


@pytest.mark.programs
@pytest.mark.parametrize("case", CASES)
def test_kubernetes_accepts_what_the_chart_renders(case: str) -> None:
    # Takes seconds of processor time: jsonschema builds the grammar of each kind of URI.
    import kubernetes_validate

    for (kind, name), found in render(CASES[case]).items():
        if "coreos.com" not in found["apiVersion"]:
            kubernetes_validate.validate(found, KUBERNETES, strict=True)
        assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo", (kind, name)
        if kind == "StatefulSet":
            spec, pod = found["spec"], found["spec"]["template"]
            assert spec["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
            (container,) = pod["spec"]["containers"]
            volumes = {each["name"] for each in [*pod["spec"].get("volumes", ()), {"name": "data"}]}
            assert {each["name"] for each in container["volumeMounts"]} == volumes
            assert pod["spec"]["securityContext"]["runAsNonRoot"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.programs
def test_one_broker_needs_no_etcd_and_may_be_moved() -> None:
    assert {kind for kind, _ in render({})} == {"ConfigMap", "Service", "StatefulSet"}


@pytest.mark.programs
def test_several_brokers_lose_one_at_a_time() -> None:
    objects = render(CASES["three brokers"])
    budgets = [found["spec"] for (kind, _), found in objects.items() if kind == "PodDisruptionBudget"]
    assert [each["maxUnavailable"] for each in budgets] == [1, 1]
    selected = [each["selector"]["matchLabels"]["app.kubernetes.io/component"] for each in budgets]
    assert sorted(selected) == ["broker", "etcd"]
    broker = objects["StatefulSet", "demo-barnabas"]["spec"]["template"]["spec"]
    assert broker["terminationGracePeriodSeconds"] == 60
    (container,) = broker["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    members = [f"demo-barnabas-etcd-{n}.demo-barnabas-etcd.space.svc.cluster.local:2379" for n in range(3)]
    assert f"--cluster=etcd://{','.join(members)}/barnabas" in container["args"]


@pytest.mark.programs
def test_prometheus_finds_the_brokers_and_the_alerts() -> None:
    objects = render(CASES["all"])
    monitor = objects["ServiceMonitor", "demo-barnabas"]
    (endpoint,) = monitor["spec"]["endpoints"]
    selected = monitor["spec"]["selector"]["matchLabels"]
    services = [found for (kind, _), found in objects.items() if kind == "Service"]
    (service,) = [each for each in services if selected.items() <= each["metadata"]["labels"].items()]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["authorization"] == {"credentials": {"name": "token", "key": "token"}}
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    alerts = yaml.safe_load((CHART / "files" / "alerts.yml").read_text("utf-8"))
    assert objects["PrometheusRule", "demo-barnabas"]["spec"] == alerts
    boards = objects["ConfigMap", "demo-barnabas-dashboards"]["data"]
    assert {name: json.loads(text)["uid"] for name, text in boards.items()} == {
        "barnabas-brokers.json": "barnabas-brokers",
        "barnabas-groups.json": "barnabas-groups",
        "barnabas-queues.json": "barnabas-queues",
    }


@pytest.mark.programs
@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"replicas": 2}, "several brokers need etcd: set etcd.mode to bundled or external"),
        ({"etcd": {"mode": "raft"}}, "etcd.mode must be none, bundled or external"),
        ({"etcd": {"mode": "external"}}, "etcd.mode=external needs etcd.external.endpoints"),
        ({"scram": {"secret": "s", "users": ["a"]}}, "scram.brokerUser must be one of scram.users"),
        ({"acls": {"enabled": True}}, "acls.enabled needs clients with names"),
        ({"tls": {"clientAuth": "required"}}, "tls.clientAuth needs tls.secret"),
        (
            {"acls": {"enabled": True}, "tls": {"secret": "s", "clientAuth": "required"}},
            "acls.enabled needs acls.superUsers",
        ),
    ],
)
def test_values_that_do_not_fit_together(values: dict[str, Any], error: str) -> None:
    given = [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]
    done = helm("template", "demo", str(CHART), f"--kube-version={KUBERNETES}.0", *given)
    assert done.returncode == 1
    assert error in done.stderr


class Pod:
    """A broker as Kubernetes would start it, on this machine: with its folders and ports."""

    def __init__(self, objects: Objects, index: int, secrets: dict[str, dict[str, str]], folder: Path) -> None:
        spec = objects["StatefulSet", "demo-barnabas"]["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        self.port, self.http_port, brokers = free_port(), free_port(), free_port()
        name = f"demo-barnabas-{index}"
        host = f"{name}.demo-barnabas.space.svc.cluster.local"
        own = [
            *((f"{host}:9092", f"localhost:{self.port}"), (f"{host}:19092", f"localhost:{brokers}")),
            *(("0.0.0.0:9092", f"127.0.0.1:{self.port}"), ("0.0.0.0:19092", f"127.0.0.1:{brokers}")),
            *(("--http-port=9308", f"--http-port={self.http_port}"), ("--http-host=0.0.0.0", "--http-host=127.0.0.1")),
            ("/etc/barnabas/", f"{folder}/"),
        ]

        def here(text: str) -> str:
            for before, after in own:
                text = text.replace(before, after)
            return text

        files = {each["name"]: each for each in spec["volumes"]}
        for mount in container["volumeMounts"]:
            if not mount["mountPath"].startswith("/etc/barnabas/"):
                continue
            volume = files[mount["name"]]
            if "configMap" in volume:
                content = objects["ConfigMap", volume["configMap"]["name"]]["data"]
            else:
                secret = volume["secret"]["secretName"]
                content = secrets.get(secret) or objects["Secret", secret]["stringData"]
            for file, text in content.items():
                path = Path(here(f"{mount['mountPath']}/{file}"))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(here(text))
        fields = {"metadata.name": name, "metadata.labels['apps.kubernetes.io/pod-index']": str(index)}
        environment: dict[str, str] = {}
        for variable in container["env"]:
            value = variable.get("value", "")
            if "fieldRef" in (source := variable.get("valueFrom", {})):
                value = fields[source["fieldRef"]["fieldPath"]]
            elif "secretKeyRef" in source:
                value = secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
            environment[variable["name"]] = here(re.sub(r"\$\((\w+)\)", lambda found: environment[found[1]], value))
        image = (ROOT / "Dockerfile").read_text("utf-8")
        entry = re.search(r"^ENTRYPOINT (.*)$", image, re.MULTILINE)
        assert entry
        program, *first = json.loads(entry[1])
        assert program == "broker"
        first = [str(folder / "data") if word == "/data" else word for word in first]
        command = [sys.executable, "-m", "barnabas_broker", *first, *map(here, container["args"])]
        self.log = folder / "broker.log"
        with self.log.open("w") as log:
            self.process = spawn(command, subprocess.DEVNULL, log.fileno(), log.fileno(), environment)

    async def serving(self) -> bool:
        """Whether it is ready."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{self.http}/readyz") as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"


@pytest.fixture
def pods() -> Iterator[list[Pod]]:
    started: list[Pod] = []
    yield started
    for pod in started:
        end(pod.process, 10.0)


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, dict[str, str]]:
    issue(tmp_path / "tls", ["localhost"], wanted_by="this test")
    certificates = {"tls-combined.pem": BROKER, "ca.crt": AUTHORITY}
    return {
        "tls": {name: (tmp_path / "tls" / file).read_text() for name, file in certificates.items()},
        "users": {"admin": "k-secret", "ada": "lovelace"},
        "token": {"token": "a-token-of-24-characters\n"},
    }


def login(pod: Pod, folder: Path, user: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": f"localhost:{pod.port}",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(folder / "tls" / AUTHORITY),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


SECURE: Final[dict[str, Any]] = {
    "tls": {"secret": "tls"},
    "scram": {"secret": "users", "users": ["admin", "ada"]},
    "acls": {"enabled": True},
    "http": {"tokenSecret": "token"},
}


@pytest.mark.programs
async def test_a_secure_broker_starts(pods: list[Pod], secrets: dict[str, dict[str, str]], tmp_path: Path) -> None:
    init = {"topics": {"orders": {}, "secret": {}}, "acls": {"ada": ["write topic orders", "read topic orders"]}}
    pod = Pod(render({**SECURE, "init": init}), 0, secrets, tmp_path / "pod")
    pods.append(pod)
    await eventually("the broker is ready", pod.serving)
    ada = login(pod, tmp_path, "ada", "lovelace")
    async with Producer(**ada) as producer:
        assert (await producer.send_and_wait("orders", b"a table")).offset == 0
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait("secret", b"a table")
    async with aiohttp.ClientSession() as session:
        async with session.get(f"{pod.http}/metrics") as refused:
            assert refused.status == 401
        async with session.get(
            f"{pod.http}/metrics", headers={"Authorization": "Bearer a-token-of-24-characters"}
        ) as answered:
            assert answered.status == 200


@pytest.mark.cluster
async def test_brokers_log_in_to_each_other(
    pods: list[Pod], secrets: dict[str, dict[str, str]], tmp_path: Path
) -> None:
    (tmp_path / "etcd").mkdir()
    etcd = Etcd(tmp_path / "etcd")
    try:
        external = {"mode": "external", "external": {"endpoints": [f"127.0.0.1:{etcd.port}"]}}
        objects = render({**SECURE, "replicas": 2, "etcd": external})
        pods += [Pod(objects, index, secrets, tmp_path / f"pod{index}") for index in range(2)]
        for pod in pods:
            await eventually("the broker is ready", pod.serving)
        admin = login(pods[0], tmp_path, "admin", "k-secret")
        async with Admin(**admin) as client, Producer(**admin, acks="all") as producer:
            await client.create_topics([NewTopic("orders", replication_factor=2)])
            await producer.send_and_wait("orders", b"a table")

            async def replicated() -> bool:
                (topic,) = await client.describe_topics(["orders"])
                return sorted(topic.partitions[0].isr) == [0, 1]

            await eventually("both replicas are in sync", replicated)
        consumer = Consumer("orders", **login(pods[1], tmp_path, "admin", "k-secret"), auto_offset_reset="earliest")
        async with consumer:
            assert (await consumer.getone()).value == b"a table"
    finally:
        for pod in pods:
            end(pod.process, 10.0)
        pods.clear()
        etcd.kill()
