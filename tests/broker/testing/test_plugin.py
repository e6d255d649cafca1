"""The pytest plugin, in runs of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs

pytest_plugins = ["pytester"]

#: Nothing that other plugins have to say.
PLAIN = ("-p", "no:cacheprovider", "-p", "no:asyncio")
#: For tests whose subject is not the process: a thread is there sooner.
THREAD = (*PLAIN, "--kafka-broker-mode=thread")

HEADER = """
import socket
import pytest
from barnabas_protocol.messages.list_groups import ListGroupsRequest
from barnabas_protocol.codec import encode_request

def ask(broker, client_id="me"):
    with socket.create_connection((broker._host, broker.port), 10) as connection:
        connection.sendall(encode_request(ListGroupsRequest(), 0, 1, client_id))
        return connection.recv(1000)
"""


def test_it_costs_nothing_before_it_is_used() -> None:
    program = """
import sys
import pytest
import barnabas_broker.pytest_plugin
heavy = {"construct", "uvloop", "barnabas_protocol", "barnabas_broker.broker", "barnabas_broker.testing"}
print(sorted(heavy & set(sys.modules)))
import barnabas_broker.testing
print(sorted((heavy - {"barnabas_broker.testing"}) & set(sys.modules)))
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)
    assert said.stdout == "[]\n[]\n"


def test_fixtures_and_marker_are_documented(pytester: pytest.Pytester) -> None:
    markers = pytester.runpytest("--markers", *PLAIN)
    markers.stdout.fnmatch_lines(["@pytest.mark.kafka_topic(partitions=1, config=None, records=()): *"])
    markers.stdout.fnmatch_lines(["@pytest.mark.kafka_cluster(brokers=3, config=None): *"])
    shown = pytester.runpytest("--fixtures", *PLAIN).stdout.str()
    fixtures = ("kafka_broker", "kafka_secure_broker", "kafka_bootstrap_servers", "kafka_topic", "kafka_faults")
    for name in (
        *fixtures,
        "kafka_group",
        "kafka_share_group",
        "kafka_records",
        "kafka_cluster",
        "kafka_schema_registry",
    ):
        assert re.search(rf"^{name}.* -- .*pytest_plugin.py:\d+\n    \S", shown, re.MULTILINE), name


def test_a_topic_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        names = set()

        @pytest.mark.parametrize("value", ["plain", "with spaces/and Ümlauts" * 20])
        @pytest.mark.kafka_topic(partitions=3, config={"cleanup.policy": "compact"})
        def test_a_topic(kafka_broker, kafka_topic, value):
            assert (kafka_broker.data_dir / f"{kafka_topic}-2").is_dir()
            assert not (kafka_broker.data_dir / f"{kafka_topic}-3").is_dir()
            names.add(kafka_topic)

        def test_another(kafka_broker, kafka_bootstrap_servers, kafka_topic):
            assert kafka_bootstrap_servers == kafka_broker.bootstrap_servers
            assert (kafka_broker.data_dir / f"{kafka_topic}-0").is_dir()
            assert len(names) == 2
            for gone in names:
                with pytest.raises(ValueError, match="cannot be created"):
                    kafka_broker.create_topic(kafka_topic)
                kafka_broker.create_topic(gone)  # was deleted

        @pytest.mark.kafka_topic(partition=3)
        def test_wrong(kafka_topic):
            pass
        """
    )
    result = pytester.runpytest(*THREAD)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        ["the marker kafka_topic has no argument partition: it takes partitions, config, records"]
    )


def test_a_schema_registry_that_each_test_finds_empty(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import json
        from urllib.request import Request, urlopen

        def register(url):
            body = json.dumps({"schema": '"string"'}).encode()
            urlopen(Request(f"{url}/subjects/orders/versions", body, {"Content-Type": "application/json"}), timeout=20)
            with urlopen(f"{url}/subjects/orders/versions/latest", timeout=20) as answer:
                return json.load(answer)["version"]

        def test_one(kafka_schema_registry):
            assert register(kafka_schema_registry) == 1

        def test_another(kafka_schema_registry):
            assert register(kafka_schema_registry) == 1

        def test_a_restart(kafka_broker, kafka_schema_registry):
            kafka_broker.restart()
            assert register(kafka_schema_registry) == 1
            kafka_broker.stop()
        """
    )
    pytester.runpytest(*THREAD).assert_outcomes(passed=3)


def test_records_before_and_after_a_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import threading
        import pytest
        from barnabas.sync import ShareConsumer

        @pytest.mark.kafka_topic(records=[b"one", ("key", "zwei ü"), (b"gone", None)])
        def test_given(kafka_topic, kafka_records):
            assert [(each.key, each.value) for each in kafka_records(kafka_topic)] == [
                (None, b"one"), (b"key", "zwei ü".encode()), (b"gone", None)
            ]

        @pytest.mark.kafka_topic(2)
        def test_waits(kafka_broker, kafka_topic, kafka_records):
            writer = threading.Timer(0.0, lambda: kafka_broker.append(kafka_topic, ["late"], partition=1))
            writer.start()
            (record,) = kafka_records(kafka_topic, count=1)
            writer.join()
            assert (record.partition, record.offset, record.value, record.headers) == (1, 0, b"late", ())
            with pytest.raises(TimeoutError, match="within 0 s 1 records were written, not 2"):
                kafka_records(kafka_topic, count=2, timeout=0)

        def test_group(kafka_group):
            assert kafka_group.startswith("test_group-")

        @pytest.mark.kafka_topic(records=["one"])
        def test_share_group(kafka_broker, kafka_topic, kafka_share_group):
            assert kafka_share_group.startswith("test_share_group-")
            settings = {"group_id": kafka_share_group, "bootstrap_servers": kafka_broker.bootstrap_servers}
            with ShareConsumer(kafka_topic, **settings) as consumer:
                assert consumer.getone().value == b"one"
            with pytest.raises(ValueError, match="cannot be configured: .*nonsense"):
                kafka_broker.set_group_config(kafka_share_group, {"nonsense": 1})

        def test_no_topic(kafka_records):
            with pytest.raises(ValueError, match="there is no topic 'nothing'"):
                kafka_records("nothing")

        def test_odd(kafka_broker, kafka_topic):
            with pytest.raises(TypeError, match="record 1 is 7: it must be a value"):
                kafka_broker.append(kafka_topic, ["good", 7])
        """
    )
    pytester.runpytest(*THREAD).assert_outcomes(passed=6)


@pytest.mark.parametrize("mode", ["process", "thread"])
def test_a_failing_test_shows_the_requests(pytester: pytest.Pytester, mode: str) -> None:
    pytester.makepyfile(
        HEADER
        + """
def test_before(kafka_broker):
    ask(kafka_broker, "somebody-else")

def test_it(kafka_broker):
    for _ in range(3):
        ask(kafka_broker)
    kafka_broker.faults.error("ListGroups", "COORDINATOR_NOT_AVAILABLE")
    ask(kafka_broker)
    assert False

def test_idle(kafka_broker):
    assert False

def test_without():
    assert False
"""
    )
    result = pytester.runpytest(*PLAIN, f"--kafka-broker-mode={mode}")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(
        [
            "*-- kafka requests --*",
            "*  me  * ListGroups v0  * ms  (3 times, this is the last)",
            "*  me  * ListGroups v0  -> COORDINATOR_NOT_AVAILABLE  [[]fault: error COORDINATOR_NOT_AVAILABLE[]]  * ms",
            "*_ test_idle _*",
            "The broker received no request from this test.",
        ]
    )
    shown = result.stdout.str()
    assert "somebody-else" not in shown
    assert "kafka" not in shown.partition("_ test_without _")[2]


def test_a_failing_test_shows_what_happened_in_it_only(pytester: pytest.Pytester) -> None:
    """Not the warning of an earlier test, nor the events of its group, although the clock was advanced since."""
    pytester.makepyfile(
        """
        import socket
        from confluent_kafka import Consumer

        def join(broker, topic, name):
            consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0,
                                 "client.id": name, "group.id": "readers"})
            consumer.subscribe([topic])
            consumer.poll(0)
            broker.wait_for_request("SyncGroup", client_id=name, answered=True, timeout=30)
            consumer.close()

        def send_garbage(broker, size):
            with socket.create_connection(("127.0.0.1", broker.port), 10) as connection:
                connection.sendall(size.to_bytes(4, "big") + bytes(8))
                assert connection.recv(1) == b""

        def test_before(kafka_broker, kafka_topic):
            send_garbage(kafka_broker, 2_000_000_001)
            kafka_broker.clock.advance(3_600)
            join(kafka_broker, kafka_topic, "earlier")

        def test_it(kafka_broker, kafka_topic):
            join(kafka_broker, kafka_topic, "later")
            send_garbage(kafka_broker, 2_000_000_002)
            assert False
        """
    )
    result = pytester.runpytest(*PLAIN)
    result.assert_outcomes(passed=1, failed=1)
    shown = result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "*-- kafka group readers --*",
            "*advanced by 3,600 s.",
            "*later*joined*",
            "*-- kafka broker log --*",
            "*2000000002*",
        ]
    )
    sections = shown.partition("-- kafka requests --")[2]
    assert "earlier" not in sections
    assert "2000000001" not in sections


def test_a_failing_test_explains_its_rebalances(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from confluent_kafka import Consumer

        def test_it(kafka_broker, kafka_topic):
            settings = {"bootstrap.servers": kafka_broker.bootstrap_servers, "log_level": 0}
            consumer = Consumer({**settings, "client.id": "reader", "group.id": "readers"})
            consumer.subscribe([kafka_topic])
            consumer.poll(0)
            kafka_broker.wait_for_request("Heartbeat", client_id="reader")
            consumer.close()
            assert False
        """
    )
    result = pytester.runpytest(*THREAD)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*-- kafka group readers --*",
            "*  Generation 1: reader (127.0.0.1) joined.",
            "*Generation 2: reader*left and closed its connection: it was stopped.*",
            "Its timeline, for a browser: *test_it-0-readers.html",
        ]
    )
    found = re.search(r"Its timeline, for a browser: (.*)$", result.stdout.str(), re.MULTILINE)
    assert found is not None
    timeline = Path(found[1]).read_text(encoding="utf-8")
    assert "Generation 1: reader (127.0.0.1) joined." in timeline
    assert "Content-Security-Policy" in timeline
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', timeline)
    assert data is not None
    requests = json.loads(data[1])["requests"]["requests"]
    assert {"JoinGroup", "SyncGroup", "LeaveGroup"} <= {each["api"] for each in requests}


def test_faults_end_with_their_test_and_a_stopped_broker_is_started(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEADER
        + """
def test_faults(kafka_broker, kafka_faults):
    fault = kafka_faults.drop("*", times=None)
    assert ask(kafka_broker) == b""
    assert fault.fired == 1

def test_none_is_left(kafka_broker):
    assert ask(kafka_broker)

def test_stop(kafka_broker, kafka_faults):
    kafka_faults.stop()
    with pytest.raises(ConnectionRefusedError):
        ask(kafka_broker)

def test_it_runs(kafka_broker, kafka_bootstrap_servers):
    assert ask(kafka_broker)
    kafka_broker.kill()

def test_it_runs_again(kafka_broker, kafka_bootstrap_servers):
    assert kafka_bootstrap_servers == kafka_broker.bootstrap_servers
    assert ask(kafka_broker)
    kafka_broker.kill()
    assert False
"""
    )
    result = pytester.runpytest(*PLAIN)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*-- kafka requests (the broker is not running) --*", "*  me  * ListGroups v0 *"])


def test_settings(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """
        [pytest]
        kafka_broker_mode = thread
        kafka_broker_init = init.yaml
        kafka_broker_config =
            num.partitions=3
            message.max.bytes = 2000
        """
    )
    pytester.makepyfile(
        """
        def test_it(kafka_broker):
            assert kafka_broker.pid is None
            assert [record.value for record in kafka_broker.records("orders")] == [b"one"]
            kafka_broker.create_topic("by-default", -1)
            assert (kafka_broker.data_dir / "by-default-3").is_dir()
            assert not (kafka_broker.data_dir / "by-default-4").is_dir()
        """
    )
    pytester.makefile(".yaml", init="topics:\n  orders: {records: [{value: one}]}\n")
    result = pytester.runpytest(*PLAIN, "--kafka-broker-config=num.partitions=4")
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("kafka_broker_mode = docker", "kafka_broker_mode = docker: must be process or thread"),
        ("kafka_broker_config = num.partitions", "kafka_broker_config: 'num.partitions' must be key=value"),
        ("kafka_broker_config = num.partitions=x", "*num.partitions='x': not a whole number"),
    ],
)
def test_settings_that_make_no_sense(pytester: pytest.Pytester, settings: str, said: str) -> None:
    pytester.makeini(f"[pytest]\n{settings}")
    pytester.makepyfile("def test_it(kafka_broker): pass")
    result = pytester.runpytest(*PLAIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{said}"])


@pytest.mark.slow
def test_a_broker_for_each_worker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        HEADER
        + """
@pytest.mark.parametrize("number", range(4))
def test_it(kafka_broker, worker_id, record_property, number):
    assert ask(kafka_broker)
    record_property("broker", f"{worker_id} {kafka_broker.pid} {kafka_broker.port}")
"""
    )
    pytester.makeconftest(
        """
        import os

        def pytest_terminal_summary(terminalreporter):
            passed = terminalreporter.stats.get("passed", [])
            for found in sorted({dict(each.user_properties)["broker"] for each in passed}):
                worker, pid, port = found.split()
                print("BROKER", worker, port, os.path.exists(f"/proc/{pid}"))
        """
    )
    result = pytester.runpytest_subprocess(*PLAIN, "-n", "2", "-W", "error", timeout=280)
    result.assert_outcomes(passed=4)
    found = re.findall(r"^BROKER (gw\d) (\d+) (\w+)$", result.stdout.str(), re.MULTILINE)
    assert [(worker, alive) for worker, _, alive in found] == [("gw0", "False"), ("gw1", "False")]
    assert len({port for _, port, _ in found}) == 2
