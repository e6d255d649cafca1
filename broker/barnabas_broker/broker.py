"""The composition root: builds the parts of a broker, starts them in order and closes them in reverse.

Start: bind the ports, lock the data directory and recover its logs, read the cluster's metadata, host the partitions,
serve. ``__consumer_offsets`` is replayed while clients are already served. Stop: hand partitions over (in a cluster),
accept nothing more, answer the requests that were started, flush, mark the shutdown as clean.

Everything that is opened is pushed on one :class:`~contextlib.AsyncExitStack`; a start that fails closes the same way
as a stop.
"""

import asyncio
import os
import random
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from inspect import isawaitable
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from barnabas_broker.clock import Clock
from barnabas_broker.cluster import ClusterError
from barnabas_broker.cluster.authorizer import open_authorizer
from barnabas_broker.cluster.client_quotas import open_quotas
from barnabas_broker.cluster.dynamic_config import follow_configuration
from barnabas_broker.cluster.passwords import add_passwords
from barnabas_broker.conditions import Conditions
from barnabas_broker.config import Config, ConfigError, Listener
from barnabas_broker.config.keys import (
    ADVERTISED_LISTENERS,
    BROKER_ID,
    EVENT_LOOP_WATCHDOG_MS,
    FETCH_SESSION_PARTITIONS,
    FETCH_SESSION_SLOTS,
    INTER_BROKER_LISTENER_NAME,
    LISTENERS,
    LOG_DIRS,
    NODE_ID,
    QUEUED_MAX_RESPONSE_BYTES,
)
from barnabas_broker.coordination import Coordinators, open_coordinators
from barnabas_broker.errors import BrokerError
from barnabas_broker.handlers.context import RequestContext, Services
from barnabas_broker.handlers.dispatch import Dispatch, api_version
from barnabas_broker.handlers.table import BETWEEN_BROKERS, TableError, join
from barnabas_broker.http.access import is_loopback
from barnabas_broker.http.diagnoses import Diagnoses
from barnabas_broker.http.port import HttpPort, bind_http
from barnabas_broker.http.samples import Samples
from barnabas_broker.http.view import View
from barnabas_broker.logs import logger
from barnabas_broker.offload import Offloaded
from barnabas_broker.periodic import PeriodicTimer
from barnabas_broker.preload import preload
from barnabas_broker.regexes import RegexSearch
from barnabas_broker.replication.connection import BrokerSecurity
from barnabas_broker.replication.fetch_sessions import FetchSessionCache
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.start import start_replication
from barnabas_broker.security.audit import Audit
from barnabas_broker.server.certificates import Certificates
from barnabas_broker.server.connection import Dispatcher, Peer
from barnabas_broker.server.limits import Limits, follow_limits
from barnabas_broker.server.listeners import Listeners, bind_listeners
from barnabas_broker.server.memory_pool import Budget
from barnabas_broker.server.refusals import Refusals
from barnabas_broker.server.sasl import ScramDirectory
from barnabas_broker.server.server import SocketServer
from barnabas_broker.share_partitions.dead_letters import DeadLetterTopics
from barnabas_broker.share_partitions.service import SharePartitions
from barnabas_broker.slicer import Slicer
from barnabas_broker.storage import ForeignDataError, LogDirectory, LogDirectoryError
from barnabas_broker.stores import Stores, open_stores
from barnabas_broker.telemetry import TelemetryClients
from barnabas_broker.watchdog import Watchdog
from barnabas_protocol.durations import seconds
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.version import VERSION

__all__ = ["BrokerError", "BrokerServer"]

log = logger("broker")

#: Seconds between two runs of storage's maintenance: retention, checkpoints, flushes that are due.
MAINTENANCE_SECONDS: Final = 1.0
#: Seconds between two looks at the lease.
LEASE_SECONDS: Final = 0.5
#: Seconds that a stop waits for responses that are not sent yet.
GRACE_SECONDS: Final = 5.0

#: Seconds between looks whether the logs of a topic have been made, and how often they are looked for.
_LOOK_SECONDS: Final = 0.01
_MOST_LOOKS: Final = 6_000

#: Puts a dispatcher in front of the broker's own.
WrapDispatcher = Callable[[Dispatch], Dispatcher]


@dataclass(eq=False, repr=False)
class BrokerServer:
    """A running broker in this event loop: a single one, or one of a cluster (``cluster.url``). See :meth:`start`.

    Attributes:
        config: its configuration, with the values that were worked out at the start.
        node_id: its id.
        listeners: where it listens, with the ports in use.
        http_host: the address of metrics and health.
        failed: set when this broker of a cluster must stop, because it cannot write any more and others can lead.
        services: the parts that handlers use.
        directory: its logs.
        server: its connections.
        dispatch: its handlers.
        view: what the HTTP endpoint shows.
        certificates: those of the listeners that speak TLS.
    """

    config: Config
    node_id: int
    listeners: tuple[Listener, ...]
    http_host: str
    failed: asyncio.Event
    services: Services
    directory: LogDirectory
    server: SocketServer
    dispatch: Dispatch
    view: View
    certificates: Certificates
    _parts: "_Parts"
    _opened: AsyncExitStack
    _began: float

    @classmethod
    async def start(
        cls,
        config: Config,
        host: str = "127.0.0.1",
        port: int = 9092,
        *,
        http_host: str = "127.0.0.1",
        http_port: int | None = None,
        http_allow_hosts: Sequence[str] = (),
        http_show_records: bool = False,
        http_insecure: bool = False,
        wrap_dispatcher: WrapDispatcher = lambda dispatch: dispatch,
        users: Mapping[str, str] = MappingProxyType({}),
        clock: Clock | None = None,
    ) -> Self:
        """Start a broker.

        Args:
            config: its configuration; it is copied.
            host: the address to listen on, if the configuration has no ``listeners``.
            port: the port to listen on, likewise; 0 picks a free one.
            http_host: the address for the page, metrics and health.
            http_port: the port for them; 0 picks a free one, None serves none.
            http_allow_hosts: host names, without a port, that requests may be for; loopback names, IP addresses,
                `http_host` and the name of this machine are allowed in any case.
            http_show_records: show the records of topics in any case; otherwise only if `http_host` is a loopback
                address, and no listener has TLS or logins.
            http_insecure: serve HTTP on an address that is not a loopback address also without a token
                (``http.token.file``) or client certificates (``http.ssl.cafile``).
            wrap_dispatcher: puts a dispatcher in front of the handlers, to see or change requests and responses.
            users: passwords of users for SCRAM; those who exist keep theirs.
            clock: the time of groups, transactions and logs; None for the machine's.

        Raises:
            BrokerError: the broker cannot start; a ConfigError if the configuration has to change first. Everything
                that was opened is closed again.
        """
        async with AsyncExitStack() as unless_started:
            with _reasons():
                broker = await cls._build(
                    await unless_started.enter_async_context(AsyncExitStack()),
                    Config(config.keys, dict(config.given)),
                    host,
                    port,
                    http_host,
                    http_port,
                    http_allow_hosts,
                    http_show_records,
                    http_insecure,
                    wrap_dispatcher,
                    Clock() if clock is None else clock,
                )
                await broker._serve(users)
            unless_started.pop_all()
        return broker

    @classmethod
    async def _build(
        cls,
        stack: AsyncExitStack,
        config: Config,
        host: str,
        port: int,
        http_host: str,
        http_port: int | None,
        http_allow_hosts: Sequence[str],
        http_show_records: bool,
        http_insecure: bool,
        wrap_dispatcher: WrapDispatcher,
        clock: Clock,
    ) -> Self:
        """Open the parts, each after those that it needs. Clients are not served yet."""
        began = time.monotonic()
        preload()
        node_id = config[NODE_ID]
        config.given |= {key.name: str(node_id) for key in (NODE_ID, BROKER_ID)}
        config.given.setdefault(LOG_DIRS.name, config[LOG_DIRS])
        # The ports before anything else: a port in use is the commonest reason why a broker cannot start.
        listeners = await bind_listeners(stack, config, host, port)
        http = None
        if http_port is not None:
            http = bind_http(stack, config, http_host, http_port, http_allow_hosts, insecure=http_insecure)
        routes = join()
        stores = await open_stores(stack, config, node_id, listeners.endpoints, clock)
        directory, cluster, member = stores.directory, stores.cluster, stores.member
        certificates = listeners.certificates
        follow_configuration(cluster, config, node_id, certificates.apply)
        certificates.advertise({name: advertised for name, (advertised, _) in listeners.endpoints.items()})
        if config[EVENT_LOOP_WATCHDOG_MS]:
            stack.callback(Watchdog(config[EVENT_LOOP_WATCHDOG_MS] / 1000).stop)
        slicer = Slicer(time.monotonic, time.thread_time)
        regexes = RegexSearch(Offloaded(stack, "regex-compile"), Offloaded(stack, "regex-match"))
        stack.callback(regexes.close)
        replicas = ReplicaManager(
            directory, config, node_id, clock.wall_ms, now=time.monotonic, may_serve=cluster.may_serve
        )
        security = BrokerSecurity(certificates.of(config[INTER_BROKER_LISTENER_NAME]), listeners.own)
        coordinators = open_coordinators(stack, config, node_id, cluster, replicas, regexes, slicer, security, clock)
        dead_letters = DeadLetterTopics(config, cluster, replicas, coordinators.peers, clock.wall_ms, time.monotonic)
        queues = SharePartitions(
            config,
            cluster,
            replicas,
            coordinators.persister,
            dead_letters,
            slicer,
            clock,
            coordinators.groups.share_groups.publish,
        )
        audit = Audit(time.monotonic)
        stack.callback(audit.close)
        authorizer = open_authorizer(config, cluster, audit)
        limits = Limits(config, (each.name for each in listeners.each))
        # What was given before the start has to be valid in any case, also if it was changed at run time.
        quotas, connection_quotas = open_quotas(config, cluster, limits.of(Config(config.keys, config.given)))
        conditions = Conditions()
        conditions.add(directory.conditions)
        conditions.add(replicas.conditions)
        if member is not None:
            conditions.add(member.conditions)
        telemetry = TelemetryClients(lambda: uuid.uuid4().bytes, clock.now)
        services = Services(
            config=config,
            node_id=node_id,
            cluster=cluster,
            replicas=replicas,
            quotas=quotas,
            telemetry=telemetry,
            now=time.monotonic,
            fetch_sessions=FetchSessionCache(
                config[FETCH_SESSION_SLOTS], config[FETCH_SESSION_PARTITIONS], lambda: random.randrange(1, 2**31)
            ),
            groups=coordinators.groups,
            group_partitions=coordinators.group_partitions,
            transactions=coordinators.transactions,
            transaction_partitions=coordinators.transaction_partitions,
            shares=coordinators.shares,
            share_partitions=coordinators.share_partitions,
            persister=coordinators.persister,
            queues=queues,
            wall_ms=clock.wall_ms,
            regexes=regexes,
            slicer=slicer,
            responses=Budget(config[QUEUED_MAX_RESPONSE_BYTES]),
            api_versions=[api_version(routes[key]) for key in sorted(routes) if key not in BETWEEN_BROKERS],
            refusals=Refusals(),
            audit=audit,
            authorizer=authorizer,
            certificates=certificates,
            limits=limits,
            conditions=conditions,
        )
        dispatch = Dispatch(services, routes)
        stack.callback(dispatch.close)
        stack.callback(slicer.close)
        server = SocketServer(
            config,
            wrap_dispatcher(dispatch),
            time.monotonic,
            services.refusals,
            services.responses,
            connection_quotas,
            slicer,
            lambda peer: audit.logged_in(peer.principal, peer.host, peer.listener, "certificate"),
        )
        follow_limits(cluster, config, node_id, limits, server.limit)
        view = View(
            node_id=node_id,
            version=VERSION,
            cluster=cluster,
            replicas=replicas,
            groups=coordinators.groups,
            transactions=coordinators.transactions,
            queues=queues,
            shares=coordinators.shares,
            directory=directory,
            server=server,
            requests=dispatch.metrics,
            quotas=quotas,
            telemetry=telemetry,
            history=coordinators.groups.journal,
            now=clock.now,
            wall_ms=clock.wall_ms,
            config=config,
            samples=Samples(),
            diagnoses=Diagnoses(),
            conditions=conditions,
            shows_records=http_show_records or (is_loopback(http_host) and listeners.open_to_all),
            lifecycle=None if member is None else member.lifecycle,
        )
        conditions.add(view.loading)
        endpoint = None if http is None else http.endpoint(view, audit)
        return cls(
            config,
            node_id,
            listeners.each,
            http_host,
            asyncio.Event(),
            services,
            directory,
            server,
            dispatch,
            view,
            certificates,
            _Parts(listeners, http, endpoint, stores, coordinators, security),
            stack,
            began,
        )

    async def _serve(self, users: Mapping[str, str]) -> None:
        """Host the partitions, enter the cluster and accept connections."""
        services, stack = self.services, self._opened
        listeners, http, endpoint, stores, coordinators, security = self._parts
        cluster, replicas, member = services.cluster, services.replicas, stores.member
        if endpoint is not None:
            stack.push_async_callback(endpoint.stop)
        stack.push_async_callback(self._end_requests)
        stack.callback(replicas.wake_fetches)
        if member is None:
            replicas.start(cluster.image)
        else:
            start_replication(stack, self.config, self.node_id, member, replicas, security, services.conditions)
        stack.callback(coordinators.stop_loading)
        cluster.subscribe(replicas.image_changed)
        cluster.subscribe(services.queues.image_changed)
        cluster.feed(coordinators.image_changed)
        if endpoint is not None:
            await endpoint.start()
        if member is not None:
            stack.push_async_callback(member.leave)
        stack.callback(self._say_that_it_stops)
        stack.callback(PeriodicTimer(MAINTENANCE_SECONDS, self.maintain).cancel)
        if member is not None:
            listeners.queue()  # until this broker is a member, it could answer with errors only
            await member.enter(self.directory.producer_ids, self.directory.leader_epochs)
            coordinators.start()
            stack.callback(PeriodicTimer(LEASE_SECONDS, self._check_lease).cancel)
        if users:
            await self.add_users(users)
        await listeners.serve(self.server, ScramDirectory(lambda: cluster.image.users), services.audit)
        log.info(
            "broker started",
            version=VERSION,
            pid=os.getpid(),
            node_id=self.node_id,
            cluster_id=cluster.image.cluster_id,
            data=str(self.directory.path.absolute()),
            listeners=self.config.given[LISTENERS.name],
            advertised=self.config.given[ADVERTISED_LISTENERS.name],
            **({} if http is None else {"http": f"{self.http_host}:{http.port}"}),
            recovery=seconds(stores.recovery),
            took=seconds(time.monotonic() - self._began),
        )

    async def _end_requests(self) -> None:
        # Together: no further request is started, and the coordinators answer the requests that are deferred.
        await asyncio.gather(
            self.server.stop(GRACE_SECONDS), self.services.queues.close(), self._parts.coordinators.close()
        )
        await self._parts.coordinators.disconnect()

    def _say_that_it_stops(self) -> None:
        self.services.conditions.stopping = True

    def maintain(self) -> None:
        """Run the maintenance that is due, as a timer does every second."""
        services, directory = self.services, self.directory
        directory.maintain(services.wall_ms())
        services.audit.tick()
        services.groups.report_repeated()
        services.queues.tick()
        services.quotas.tick(services.now())
        if self._parts.stores.member is not None and directory.failure is not None and not self.failed.is_set():
            log.error("broker stops, so that others lead its partitions", reason=directory.failure)
            self.failed.set()

    def _check_lease(self) -> None:
        """Answer what waits for this broker as a leader, if its lease has ended. The coordinators are unloaded first:
        appends fail that are in the log, and a coordinator that goes on must know all of its log."""
        member = self._parts.stores.member
        if member is not None and member.lifecycle.lease_has_ended:
            self._parts.coordinators.reconcile()
            self.services.replicas.lease_has_ended()

    @property
    def host(self) -> str:
        """The address of the first listener."""
        return self.listeners[0].host

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.listeners[0].port

    @property
    def http_port(self) -> int | None:
        """The port of metrics and health; None if they are not served."""
        return None if self._parts.http is None else self._parts.http.port

    @property
    def has_certificates(self) -> bool:
        """Whether anything speaks TLS here."""
        return bool(self.certificates) or (self._parts.http is not None and self._parts.http.tls is not None)

    def reload_certificates(self) -> None:
        """Read all certificates again. One that cannot be used is logged, and the earlier one stays."""
        self.certificates.reload()
        if self._parts.http is not None:
            self._parts.http.reload_certificate()

    async def ask(self, key: ApiKey, request: Any, client_id: str) -> Any:
        """Ask a handler of this broker, past its listeners; everything is allowed.

        Args:
            key: the API.
            request: its request, as of the newest version.
            client_id: who asks, for the log.
        """
        route = self.dispatch.routes[key]
        context = RequestContext(self.dispatch.services, Peer("127.0.0.1", 0), route.served.high, client_id, None)
        handled: Any = route.handler(context, request)
        return await handled if isawaitable(handled) else handled

    async def hosted(self, topic: str) -> None:
        """Wait until the logs of a new topic have been made.

        Raises:
            BrokerError: they were not made in time.
        """
        for _ in range(_MOST_LOOKS):
            if not self.services.replicas.creating(topic):
                return
            await asyncio.sleep(_LOOK_SECONDS)
        raise BrokerError(f"topic {topic}: its logs were not made within {_MOST_LOOKS * _LOOK_SECONDS:g} s")

    async def load_groups(self) -> None:
        """Wait until groups can be coordinated, and have been loaded if this broker coordinates them."""
        await self.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=["any"]), "")
        await asyncio.gather(*self.services.group_partitions.loading)

    async def add_users(self, passwords: Mapping[str, str]) -> Collection[str]:
        """Add users for each mechanism of SCRAM, unless they exist; the names of the new ones.

        Raises:
            BrokerError: the metadata cannot be changed.
        """
        return await add_passwords(self.services.cluster, passwords)

    def traffic(self) -> int:
        """Bytes received and sent so far, over all connections."""
        return self.server.traffic.bytes_in + self.server.traffic.bytes_out

    async def stop(self, reason: str = "its program stops it") -> None:
        """Answer the requests that were started, flush, and unlock the data directory. May be called twice.

        Args:
            reason: for the log: the name of a signal, for instance.
        """
        began, first = time.monotonic(), not self.view.conditions.stopping
        if first:
            uptime = seconds(began - self._began)
            log.info("broker stops", node_id=self.node_id, reason=reason, uptime=uptime)
        await self._opened.aclose()
        if first:
            log.info("broker stopped", node_id=self.node_id, reason=reason, took=seconds(time.monotonic() - began))


class _Parts(NamedTuple):
    """The parts of a broker that only itself uses, to start and to stop.

    Attributes:
        listeners: the bound listeners.
        http: the bound port of metrics and health; None if they are not served.
        endpoint: answers requests there.
        stores: the data directory, and the metadata.
        coordinators: of groups and transactions.
        security: how this broker logs in to the others.
    """

    listeners: Listeners
    http: HttpPort | None
    endpoint: Any
    stores: Stores
    coordinators: Coordinators
    security: BrokerSecurity


@contextmanager
def _reasons() -> Iterator[None]:
    """Name the reason why a broker cannot start as a BrokerError."""
    try:
        yield
    except ForeignDataError as error:
        raise ConfigError(f"{error}. To do: change log.dirs, node.id or cluster.url") from error
    except (LogDirectoryError, ClusterError, TableError) as error:
        raise BrokerError(str(error)) from error
