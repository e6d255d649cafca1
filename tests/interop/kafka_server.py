"""A real Apache Kafka on this machine: the reference that Barnabas is compared with.

    with ApacheKafka() as kafka:
        kafka.tool("kafka-topics", "--bootstrap-server", kafka.bootstrap_servers, "--list")

The jars come from Maven once (kafka/pom.xml pins them) and stay in a cache folder. `run_tool` needs no Kafka
broker: it also runs Kafka's programs against Barnabas, or on the files of Barnabas.

In the foreground: python -m tests.interop.kafka_server --port 19092
"""

import argparse
import base64
import contextlib
import functools
import hashlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import ClassVar, Final, Self
from xml.etree import ElementTree

from tests.interop import process
from tests.interop.cache import Unavailable, cached
from tests.interop.server import Server, ServerFailed, answers, free_port
from tests.needs import java, java_problem

POM: Final = Path(__file__).with_name("kafka") / "pom.xml"

# The main classes of bin/kafka-*.sh of the distribution.
TOOLS: Final[Mapping[str, str]] = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactional-message-copier": "org.apache.kafka.tools.TransactionalMessageCopier",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}

# The settings of bin/kafka-run-class.sh, so that measurements are of the Kafka that people run.
SERVER_JVM: Final = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

TEST_DEFAULTS: Final[Mapping[str, str]] = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}

SERVER_LOG4J: Final = """\
status = error
name = barnabas-interop
appender.file.type = File
appender.file.name = file
appender.file.fileName = {path}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = {level}
rootLogger.appenderRef.file.ref = file
"""

# To standard error, because several tools print their result, and nothing else, to standard output.
TOOL_LOG4J: Final = """\
status = error
name = barnabas-interop-tool
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
"""


#: Apache Kafka is not available on this machine.
KafkaUnavailable = Unavailable


# ---------------------------------------------------------------------------------------------------- jars and Java


def kafka_version() -> str:
    version = ElementTree.parse(POM).findtext("{*}properties/{*}kafka.version")
    if version is None:
        raise ValueError(f"{POM.name} names no kafka.version")
    return version


def has_tools() -> bool:
    """Return whether Java and Maven are both installed, so that a Kafka that does not run is a failure."""
    return java() is not None and shutil.which("mvn") is not None


def resolve(timeout: float = 600) -> Path:
    """Return the folder with all jars of Apache Kafka, see `jars`."""
    return jars(f"kafka-{kafka_version()}", POM, timeout)


def jars(name: str, pom: Path, timeout: float = 600) -> Path:
    """Return the cache folder with the jars of a pom; download them if needed. Raises KafkaUnavailable."""
    problem = java_problem()
    if problem is not None:
        raise KafkaUnavailable(problem)
    return cached(name, hashlib.sha256(pom.read_bytes()).hexdigest(), functools.partial(_copy_jars, pom), timeout)


def _copy_jars(pom: Path, folder: Path, timeout: float) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable("mvn is not on the PATH, and the jars are not in the cache")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    try:
        done = process.run([maven, "-B", "-q", "-f", str(pom), *goal], timeout)
    except subprocess.TimeoutExpired as error:
        raise KafkaUnavailable(f"mvn has not resolved the jars within {timeout:.0f} s") from error
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "[ERROR]" in line]
        why = (
            re.sub(r"\s*\(?\w+://\S+", "", lines[0].partition("[ERROR]")[2]).strip()[:200]
            if lines
            else "no reason given"
        )
        raise KafkaUnavailable(f"mvn could not resolve the jars: {why}")


def _java_command(
    jvm: Sequence[str], main_class: str, args: Sequence[str], log4j: Path, more: Path | None = None
) -> list[str]:
    path = ":".join([f"{resolve()}/*", *([] if more is None else [f"{more}", f"{more}/*"])])
    return [java() or "java", *jvm, f"-Dlog4j2.configurationFile={log4j}", "-cp", path, main_class, *args]


# C1 only and one collector thread: a short program starts faster, and leaves a core to the server it is pointed at.
TOOL_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@contextlib.contextmanager
def tool_command(
    main_class: str, args: Sequence[str], jvm: Sequence[str] = TOOL_JVM, more: Path | None = None
) -> Iterator[list[str]]:
    """The command of one of Kafka's programs, see `run_tool`; it can be run until the context ends."""
    with tempfile.TemporaryDirectory(prefix="barnabas-kafka-tool-") as folder:
        log4j = Path(folder) / "log4j2.properties"
        log4j.write_text(TOOL_LOG4J)
        yield _java_command(jvm, TOOLS.get(main_class, main_class), args, log4j, more)


def run_tool(
    main_class: str, *args: str, timeout: float = 60, stdin: str | None = None, jvm: Sequence[str] = TOOL_JVM
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's programs to its end: a name of TOOLS, or any main class of the jars.

    Raises subprocess.TimeoutExpired; the caller checks the exit code. Measurements pass their own `jvm` options.
    """
    with tool_command(main_class, args, jvm) as command:
        return process.run(command, timeout, stdin)


@contextlib.contextmanager
def start_tool(
    main_class: str, *args: str, jvm: Sequence[str] = TOOL_JVM, more: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Run one of Kafka's programs until the context ends, with pipes to its stdin and from its stdout.

    `more` is a folder with jars or classes that it needs beside those of the server. It inherits our standard error, so
    that no unread pipe can block it.
    """
    with tool_command(main_class, args, jvm, more) as command:
        running = process.spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            yield running
        finally:
            process.end(running, 5)
            for stream in (running.stdin, running.stdout):
                if stream is not None:
                    with contextlib.suppress(BrokenPipeError):  # the program has ended before it read all input
                        stream.close()


def compiled(source: Path, folder: Path) -> Path:
    """Compile a program of Kafka's classes into a folder, for those that are started often; returns the folder."""
    path = ":".join(map(str, resolve().glob("*.jar")))
    done = run_tool("com.sun.tools.javac.Main", "-cp", path, "-d", str(folder), str(source), timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


# ------------------------------------------------------------------------------------------------------- the server


class Quorum:
    """The controllers of a cluster of Apache Kafka: each node is one, and a broker.

    Args:
        nodes: how many; their ids begin at 1.
    """

    def __init__(self, nodes: int = 1) -> None:
        self.cluster_id = _uuid()
        self.ports = [free_port() for _ in range(nodes)]
        self._directories = [_uuid() for _ in range(nodes)]

    @property
    def servers(self) -> str:
        """The addresses of all controllers."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def voters(self) -> str:
        """All controllers with the ids of their directories, for StorageTool."""
        each = enumerate(zip(self.ports, self._directories, strict=True), 1)
        return ",".join(f"{node_id}@127.0.0.1:{port}:{directory}" for node_id, (port, directory) in each)


def _uuid() -> str:
    """A random id as Kafka prints it. It does not begin with a dash, which its programs read as an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


class ApacheKafka(Server):
    """Broker and controller in one (KRaft), alone or as node `node_id` of a `quorum`.

    `overrides` are lines of server.properties; the controller has a listener beside those of `listeners`.
    `format_args` go to StorageTool, for example
    ("--feature", "group.version=0").
    """

    NAME: ClassVar[str] = "Apache Kafka"

    def __init__(
        self,
        overrides: Mapping[str, str | int | bool] | None = None,
        *,
        port: int | None = None,
        folder: Path | None = None,
        heap: str = "512m",
        jvm: Sequence[str] = SERVER_JVM,
        format_args: Sequence[str] = (),
        log_level: str = "info",
        start_timeout: float = 100,
        ready: Callable[[int], bool] = answers,
        pause: float = 0.02,
        quorum: Quorum | None = None,
        node_id: int = 1,
    ) -> None:
        super().__init__(overrides, port=port, folder=folder, start_timeout=start_timeout, ready=ready, pause=pause)
        self._quorum = quorum
        self._node_id = node_id
        self._jvm = [*jvm, f"-Xmx{heap}"]
        self._format_args = format_args
        self._log_level = log_level
        self.controller_port = 0

    def __enter__(self) -> Self:
        resolve()
        return super().__enter__()

    @property
    def log_dir(self) -> Path:
        return self.folder / "data"

    @property
    def server_log(self) -> Path:
        """The file with Kafka's log4j output."""
        return self.folder / "server.log"

    def kill(self) -> None:
        """Kill it (SIGKILL). The next start() takes more than broker.session.timeout.ms (9 s): until then, Kafka's
        controller considers the killed broker alive and rejects the new one.
        """
        super().kill()

    def tool(
        self, main_class: str, *args: str, timeout: float = 60, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """See run_tool. `args` must contain the server: the programs have different options for it."""
        return run_tool(main_class, *args, timeout=timeout, stdin=stdin)

    def _prepare(self) -> None:
        quorum = self._quorum or Quorum()
        self.controller_port = quorum.ports[self._node_id - 1]
        given = self._overrides.get("listeners", f"PLAINTEXT://127.0.0.1:{self.port}")
        listeners = f"{given},CONTROLLER://127.0.0.1:{self.controller_port}"
        properties = {
            **TEST_DEFAULTS,
            "process.roles": "broker,controller",
            "node.id": str(self._node_id),
            "controller.quorum.bootstrap.servers": quorum.servers,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "advertised.listeners": listeners,
            "log.dirs": str(self.log_dir),
            **self._overrides,
            "listeners": listeners,
        }
        path = self.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        log4j = SERVER_LOG4J.format(path=self.server_log, level=self._log_level)
        (self.folder / "log4j2.properties").write_text(log4j)
        if (self.log_dir / "meta.properties").exists():
            raise ServerFailed(f"{self.log_dir} holds the data of an earlier node: give an empty folder")
        # Format as in the quickstart (a voter set in the log, the release's newest features), so that the tests use the
        # Kafka that people run.
        voters = "--standalone" if self._quorum is None else f"--initial-controllers={quorum.voters}"
        args = ["format", voters, f"--cluster-id={quorum.cluster_id}", "-c", str(path), *self._format_args]
        done = run_tool("kafka-storage", *args, timeout=self._start_timeout)
        if done.returncode != 0:
            raise ServerFailed(f"StorageTool: {(done.stderr or done.stdout).strip()[-1000:]}")

    def _command(self) -> Sequence[str]:
        args = [str(self.folder / "server.properties")]
        return _java_command(self._jvm, "kafka.Kafka", args, self.folder / "log4j2.properties")


@contextlib.contextmanager
def kafka_cluster(
    nodes: int,
    overrides: Mapping[str, str | int | bool] | None = None,
    *,
    heap: str = "512m",
    jvm: Sequence[str] = SERVER_JVM,
) -> Iterator[list[ApacheKafka]]:
    """Run a cluster of Apache Kafka. The nodes start at the same time: one waits for the others."""
    quorum = Quorum(nodes)
    settings = {
        "offsets.topic.replication.factor": nodes,
        "transaction.state.log.replication.factor": nodes,
        "transaction.state.log.min.isr": min(nodes, 2),
    }
    servers = [
        ApacheKafka({**settings, **(overrides or {})}, heap=heap, jvm=jvm, quorum=quorum, node_id=node_id)
        for node_id in range(1, nodes + 1)
    ]
    with contextlib.ExitStack() as stack:
        with ThreadPoolExecutor(nodes) as pool:
            for future in [pool.submit(stack.enter_context, server) for server in servers]:
                future.result()
        yield servers


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run Apache Kafka in the foreground, until Ctrl-C or SIGTERM.")
    parser.add_argument("--port", type=int, help="default: any free one")
    parser.add_argument("--heap", default="512m", help="of the JVM (default: %(default)s)")
    parser.add_argument("--folder", type=Path, help="an empty folder that keeps data and logs (default: temporary)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a line of server.properties")
    options = parser.parse_args(argv)
    overrides = dict(line.partition("=")[::2] for line in options.set)

    def leave(signum: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    # By default, SIGTERM ends Python without leaving the with block.
    signal.signal(signal.SIGTERM, leave)
    try:
        with ApacheKafka(overrides, port=options.port, folder=options.folder, heap=options.heap) as kafka:
            print(f"listening on {kafka.bootstrap_servers}", flush=True)
            print(f"Apache Kafka {kafka_version()}, pid {kafka.pid}, log {kafka.server_log}", flush=True)
            return kafka.wait()
    except KeyboardInterrupt:
        return 0
    except (KafkaUnavailable, ServerFailed) as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
