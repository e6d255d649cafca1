"""A broker that a test starts, stops and inspects."""

import os
import shutil
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas_broker.errors import BrokerError
from barnabas_broker.testing.clock import BrokerClock
from barnabas_broker.testing.faults import Faults
from barnabas_broker.testing.link import CALL_SECONDS, START_SECONDS, Command, HostLink, call, refuse_in_loop
from barnabas_broker.testing.managed import Managed
from barnabas_broker.testing.process import ProcessLink, tail
from barnabas_broker.testing.records import Given, StoredRecord, given_records, stored_records
from barnabas_broker.testing.requests import SeenRequest
from barnabas_broker.testing.secure import LibrdkafkaSettings, Mechanism, Secured, Security

#: The keys that differ from Kafka's defaults, because tests are short and have one broker.
TEST_DEFAULTS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "log.segment.delete.delay.ms": "0",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
#: Requests of earlier runs of the broker that are kept.
_MOST_REQUESTS: Final = 2_000
#: The file with the log lines of its process, and the lines of it that are shown.
_LOG: Final = "broker.log"
_MOST_LINES: Final = 200


class Moment(NamedTuple):
    """A moment in the life of a broker.

    Attributes:
        time: on the machine's clock, in seconds since 1970.
        broker_time: on the broker's, which a test may have advanced.
        log_bytes: bytes of its log lines so far.
    """

    time: float
    broker_time: float
    log_bytes: int


#: Before a broker has begun.
BEGIN: Final = Moment(0.0, 0.0, 0)


class Broker(Managed):
    """A real broker, for a test. As a context manager, sync or async, it is started and closed.

    Args:
        process: run it in a process of its own; otherwise on a thread of this process, which starts sooner, but cannot
            be killed and shares the interpreter with the test. Default: True.
        config: Kafka's keys, over defaults that suit tests (:data:`TEST_DEFAULTS`). Default: None.
        host: the address to listen on. Default: "127.0.0.1".
        port: the TCP port to listen on; 0 picks a free one, which the broker then keeps. Default: 0.
        data_dir: the folder of its log. Default: None, for a temporary folder that :meth:`close` removes.
        security: what clients speak: "PLAINTEXT", "SSL" for TLS, "SASL_SSL" to log in over TLS, or "SASL_PLAINTEXT".
            Certificates are made with trustme (``pip install 'barnabas[testing]'``). Default: "PLAINTEXT".
        users: the passwords of the users who log in, by name, for PLAIN and both mechanisms of SCRAM. Default: None.
        acls: what each user may do, such as ``{"ada": ["read topic orders", "read group *"]}``: an operation, a type of
            resource, and a name, the beginning of names with ``*`` behind it, or ``*``; ``deny`` before it denies.
            Users may do nothing else. Default: None, everyone may do everything.
        init: a file that declares topics, records, users, ACLs, quotas and groups' offsets; see ``broker --init``.
            Default: None.

    Raises:
        ValueError: an argument is not valid; the text says what would be right.

    Attributes:
        faults: injects faults.
        clock: its clock, which a test advances.
    """

    def __init__(
        self,
        *,
        process: bool = True,
        config: Mapping[str, object] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        data_dir: str | os.PathLike[str] | None = None,
        security: Security = "PLAINTEXT",
        users: Mapping[str, str] | None = None,
        acls: Mapping[str, Iterable[str]] | None = None,
        init: str | os.PathLike[str] | None = None,
    ) -> None:
        self.faults = Faults(self)
        self.clock = BrokerClock(self)
        self._secured = Secured(security, users or {}, acls)
        self._process = process
        self._config = {**TEST_DEFAULTS, **{key: config_text(value) for key, value in (config or {}).items()}}
        if self._config.keys() & {"log.dir", "log.dirs"}:
            raise ValueError("log.dir and log.dirs are not accepted: give the folder as data_dir")
        if security != "PLAINTEXT" and "listeners" in self._config:
            raise ValueError("security and listeners are given: give one of them")
        self._host = host
        self._port = port
        self._init = None if init is None else str(Path(init).absolute())
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._registry_port: int | None = None
        self._folder: Path | None = None
        self._lock = threading.RLock()
        self._link: HostLink | None = None
        self._closer: weakref.finalize[Any, Any] | None = None
        self._remover: weakref.finalize[Any, Any] | None = None
        self._requests: list[SeenRequest] = []
        self._history: dict[str, dict[str, Any]] = {}

    def __repr__(self) -> str:
        mode = "process" if self._process else "thread"
        return f"<Broker {self._host}:{self._port} ({mode}, {'running' if self.running else 'stopped'})>"

    # Start and stop

    def start(self) -> None:
        """Start it, if it does not run; after a stop with the same port and data as before.

        Raises:
            BrokerError: it cannot be started; the text says why.
        """
        with self._lock:
            if self.running:
                return
            self._discard()
            link = self._link = self._open()
            self._closer = weakref.finalize(self, link.close)
            config = {"log.dirs": str(self.data_dir), **self._security_keys(), **self._config}
            history = {group: each["events"] for group, each in self._history.items()}
            count = self._requests[-1].number if self._requests else 0
            command = {
                "do": "start",
                "config": config,
                "host": self._host,
                "port": self._port,
                "count": count,
                "history": history,
                "security": self._secured.security,
                "users": self._secured.users,
                "acls": self._secured.acls or {},
                "ahead": self.clock.ahead,
                "init": self._init,
                "registry": self._registry_port,
            }
            try:
                started = call(link, command, START_SECONDS)
            except BaseException:
                self._discard()
                raise
            self._port = started["port"]
            for warning in started["warnings"]:
                warnings.warn(warning, stacklevel=2)

    def _open(self) -> HostLink:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="barnabas-"))
            self._remover = weakref.finalize(self, _remove, self._folder, os.getpid())
        if self._process:
            return ProcessLink(self._folder / _LOG, self._folder)
        # Imported here: it brings the whole broker into this process, which Broker(process=True) avoids.
        from barnabas_broker.testing.thread import ThreadLink

        return ThreadLink()

    def stop(self) -> None:
        """Stop it, if it runs: answer pending requests, flush. The next start uses the same port and data.

        Raises:
            BrokerError: it did not stop by itself, and was ended by force.
        """
        with self._lock:
            if self.running:
                self._remember()
                try:
                    self.call({"do": "stop"})
                finally:
                    self._discard()

    def restart(self) -> None:
        """Stop it, if it runs, and start it with the same port and data.

        Raises:
            BrokerError: it cannot be started; the text says why.
        """
        with self._lock:
            if self.running:
                self.call({"do": "restart"}, START_SECONDS)
            else:
                self.start()

    def kill(self) -> None:
        """Kill its process with SIGKILL, as a crash of its machine would; :meth:`start` recovers what it wrote.

        Raises:
            BrokerError: it does not run, or has no process of its own.
        """
        with self._lock:
            link = self._link
            if link is None or not link.alive:
                raise BrokerError("the broker is not running")
            if link.pid is not None:
                self._remember()
            link.kill()
            self._discard()

    def close(self) -> None:
        """Stop it, if it runs, and remove its data if they were temporary."""
        with self._lock:
            try:
                self.stop()
            finally:
                self._discard()
                if self._remover is not None:
                    self._remover()
                self._folder = None

    def _discard(self) -> None:
        """Drop the link to the host, and end the host if it runs."""
        self._link = None
        if self._closer is not None:
            self._closer()

    def call(self, command: Command, timeout: float = CALL_SECONDS) -> Any:
        """Send a command to the broker's host and wait for what it returns; for the parts of this package.

        Raises:
            BrokerError: the broker does not run, or does not answer.
        """
        link = self._link
        if link is None:
            raise BrokerError("the broker is not running")
        return call(link, command, timeout)

    # Its state

    @property
    def running(self) -> bool:
        """Whether it runs."""
        return self._link is not None and self._link.alive

    @property
    def node_id(self) -> int:
        """Its node id."""
        return int(self._config.get("node.id", 1))

    @property
    def port(self) -> int:
        """Its port.

        Raises:
            BrokerError: it was never started.
        """
        if not self._port:
            raise BrokerError("the broker has no port before it is started")
        return self._port

    @property
    def bootstrap_servers(self) -> str:
        """The value for ``bootstrap.servers``: HOST:PORT."""
        return f"{self._host}:{self.port}"

    def confluent_settings(self, user: str | None = None, mechanism: Mechanism = "SCRAM-SHA-512") -> LibrdkafkaSettings:
        """The settings with which a client of confluent-kafka connects: the address, certificates, and a user.

        Args:
            user: one of `users`; the first one if None.
            mechanism: how it logs in.

        Raises:
            ValueError: there is no such user.
            BrokerError: it was never started.
        """
        return {
            "bootstrap.servers": self.bootstrap_servers,
            **self._secured.librdkafka(self._files, user, mechanism),
        }

    def client_settings(self, user: str | None = None, mechanism: Mechanism = "SCRAM-SHA-512") -> dict[str, Any]:
        """The same for clients of aiokafka, kafka-python and `barnabas`: keyword arguments.

        Args:
            user: one of `users`; the first one if None.
            mechanism: how it logs in.

        Raises:
            ValueError: there is no such user.
            BrokerError: it was never started.
        """
        return {"bootstrap_servers": self.bootstrap_servers, **self._secured.python(self._files, user, mechanism)}

    @property
    def cafile(self) -> Path:
        """The PEM file with the certificate that clients trust, for a broker with TLS.

        Raises:
            BrokerError: it has no TLS, or was never started.
        """
        if not self._secured.encrypted:
            raise BrokerError('the broker has no TLS: start it with security="SSL" or "SASL_SSL"')
        return self._files / "ca.pem"

    @property
    def _files(self) -> Path:
        """The folder of its certificates."""
        if self._folder is None:
            raise BrokerError("the broker has no certificates before it is started")
        return self._folder / "tls"

    def _security_keys(self) -> dict[str, str]:
        return self._secured.keys(self._host, self._files)

    @property
    def pid(self) -> int | None:
        """Its process id; None without a process of its own."""
        return None if self._link is None else self._link.pid

    @property
    def data_dir(self) -> Path:
        """The folder of its log.

        Raises:
            BrokerError: it is a temporary folder that does not exist yet, or was removed.
        """
        if self._data_dir is not None:
            return self._data_dir
        if self._folder is None:
            raise BrokerError("the broker has no data before it is started")
        return self._folder / "data"

    # Its past

    def _remember(self) -> None:
        """Keep what its host knows, before the host ends."""
        self._requests, self._history = self.requests[-_MOST_REQUESTS:], self._histories()

    @property
    def requests(self) -> list[SeenRequest]:
        """The last requests, oldest first, over restarts as well."""
        if not self.running:
            return list(self._requests)
        after = self._requests[-1].number if self._requests else 0
        return [*self._requests, *(SeenRequest(**each) for each in self.call({"do": "requests", "after": after}))]

    def wait_for_request(
        self,
        api: str | int,
        *,
        count: int = 1,
        client_id: str | None = None,
        after: SeenRequest | None = None,
        answered: bool = False,
        timeout: float = 10.0,
    ) -> SeenRequest:
        """Wait until a request has arrived. Requests from before the call count too.

        In a coroutine, ``await asyncio.to_thread(broker.wait_for_request, ...)``.

        Args:
            api: the API by its name: "JoinGroup".
            count: the number of requests to wait for.
            client_id: the client that sends them; None for any.
            after: ignore this request and all before it.
            answered: whether they must have been answered.
            timeout: seconds to wait.

        Returns:
            The last of them.

        Raises:
            TimeoutError: they did not arrive in time.
            ValueError: there is no such API.
            RuntimeError: an event loop runs in this thread.
        """
        refuse_in_loop("wait_for_request")
        number = after.number if after is not None else 0
        command = {
            "do": "wait_request",
            "api": api,
            "count": count,
            "after": number,
            "client_id": client_id,
            "answered": answered,
            "timeout": timeout,
        }
        return SeenRequest(**self.call(command, timeout + CALL_SECONDS))

    def _histories(self) -> dict[str, dict[str, Any]]:
        return dict(self.call({"do": "history"})) if self.running else self._history

    @property
    def group_history(self) -> dict[str, list[dict[str, Any]]]:
        """The group events of each group, oldest first, as in ``__group_events``."""
        return {group: each["events"] for group, each in self._histories().items()}

    def group_requests(self, group: str) -> dict[str, Any] | None:
        """The newest requests of a group's members, as the page has them; None if none is known."""
        return self._histories().get(group, {}).get("requests")

    def explain(self, group: str, since: float = 0.0) -> str:
        """Why a group rebalanced, in sentences; "" if it has no events.

        Args:
            group: its id.
            since: ignore events before this time, in seconds since 1970.
        """
        explanations = self._histories().get(group, {"explanations": []})["explanations"]
        lines = []
        for each in explanations:
            if each["time"] >= int(since * 1000):
                clock = time.strftime("%H:%M:%S", time.localtime(each["time"] / 1000))
                lines.append(f"{clock}.{each['time'] % 1000:03d}  {each['text']}")
                lines.extend(f"              {detail}" for detail in each["details"])
                lines.extend([f"              {each['remedy']}"] if each["remedy"] else [])
        return "\n".join(lines)

    @property
    def log_lines(self) -> list[str]:
        """Its last log lines, warnings and errors only. A broker on a thread writes them to `logging` instead."""
        return self.log_lines_since(BEGIN)

    def log_lines_since(self, moment: "Moment") -> list[str]:
        """Its last log lines after a moment."""
        return [] if self._folder is None else tail(self._folder / _LOG, _MOST_LINES, moment.log_bytes)

    def moment(self) -> "Moment":
        """The present moment."""
        now, log = time.time(), None if self._folder is None else self._folder / _LOG
        size = log.stat().st_size if log is not None and log.exists() else 0
        return Moment(now, now + self.clock.ahead, size)

    # Schemas

    def serve_schema_registry(self) -> str:
        """Start a schema registry beside the broker, if it does not run yet; its URL, the same after a restart.

        It speaks Confluent's REST API. What is registered is in the broker's topic ``_schemas``.

        Raises:
            BrokerError: the broker does not run, or a package is missing (``pip install 'barnabas[registry]'``).
        """
        with self._lock:
            self._registry_port = int(self.call({"do": "serve_registry"}))
        return f"http://{self._host}:{self._registry_port}"

    def clear_schema_registry(self) -> None:
        """Remove all subjects, compatibility levels and modes from the schema registry. Ids are not used again."""
        self.call({"do": "clear_registry"})

    # Groups

    def expire_member(self, group: str, member: str) -> str:
        """End the session of a group's member, as if its heartbeats had stopped: the group rebalances without it.

        The member does not know it: it learns it from the answer to its next heartbeat or commit, and joins again.

        Args:
            group: the group's id.
            member: its member id, its ``group.instance.id``, or its client id.

        Returns:
            Its member id.

        Raises:
            ValueError: there is no such member, or several; or it waits for a rebalance.
        """
        return str(self.call({"do": "expire_member", "group_id": group, "name": member}))

    def set_group_config(self, group: str, config: Mapping[str, object]) -> None:
        """Set configuration keys of a group, which need not exist yet.

        Args:
            group: its id.
            config: Kafka's configuration keys for groups, such as ``share.record.lock.duration.ms``.

        Raises:
            ValueError: the broker refuses them; the text says why.
        """
        settings = {key: config_text(value) for key, value in config.items()}
        self.call({"do": "set_group_config", "group": group, "config": settings})

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, object] | None = None,
        replication_factor: int = -1,
    ) -> None:
        """Create a topic; clients can use it at once.

        Args:
            name: its name.
            partitions: the number of partitions.
            config: Kafka's configuration keys for topics.
            replication_factor: the number of replicas; -1 for ``default.replication.factor``.

        Raises:
            ValueError: the broker refuses it; the text says why.
        """
        settings = {key: config_text(value) for key, value in (config or {}).items()}
        command = {"do": "create_topic", "name": name, "partitions": partitions, "config": settings}
        self.call({**command, "replication_factor": replication_factor})

    def delete_topic(self, name: str) -> None:
        """Delete a topic, if there is one."""
        self.call({"do": "delete_topic", "name": name})

    # Records

    def append(self, topic: str, records: Iterable[Given | tuple[Given, Given]], partition: int = 0) -> None:
        """Write records to a topic, without a client; consumers can read them when this returns.

        Args:
            topic: the topic, which exists.
            records: values, or pairs of key and value. Text is written as UTF-8, None as null.
            partition: the partition.

        Raises:
            ValueError: the broker refuses them; the text says why.
            TypeError: a key or a value is not bytes, text or None.
        """
        given = given_records(records)
        if given:
            self.call({"do": "append", "topic": topic, "partition": partition, "records": given})

    def records(self, topic: str, count: int = 0, timeout: float = 10.0) -> list[StoredRecord]:
        """The records of a topic, by partition and offset, once there are enough of them.

        Those of open and of aborted transactions count, as for a consumer with ``read_uncommitted``. In a coroutine,
        ``await asyncio.to_thread(broker.records, ...)``.

        Args:
            topic: the topic.
            count: how many to wait for.
            timeout: seconds to wait.

        Raises:
            TimeoutError: there were fewer; the text says how many.
            ValueError: there is no such topic.
            RuntimeError: an event loop runs in this thread.
        """
        refuse_in_loop("records")
        command = {"do": "records", "topic": topic, "count": count, "timeout": timeout}
        return stored_records(self.call(command, timeout + CALL_SECONDS))


def config_text(value: object) -> str:
    """A value of a configuration as Kafka writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
