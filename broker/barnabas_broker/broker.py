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
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from inspect import isawaitable
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from barnabas_broker.clock import Clock, wall_ms
from barnabas_broker.cluster import ClusterError
from barnabas_broker.cluster.acls import AclCreated, AclDeleted
from barnabas_broker.cluster.controller import (
    IsrChange,
    LogEnd,
    Withdrawal,
    add_users,
    alter_isr,
    report_log_ends,
    withdraw,
)
from barnabas_broker.cluster.image import (
    BrokerConfigured,
    BrokerFenced,
    BrokerRegistered,
    Endpoints,
    Event,
    GroupConfigured,
    Image,
    PartitionChanged,
    PartitionsAdded,
    TopicCreated,
    TopicDeleted,
    TopicInfo,
)
from barnabas_broker.cluster.local import NAME as METADATA_JOURNAL
from barnabas_broker.cluster.local import LocalStore
from barnabas_broker.cluster.member import ClusterMember, open_cluster
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.quotas import ClientQuotaRemoved, ClientQuotaSet
from barnabas_broker.conditions import Conditions
from barnabas_broker.config import PLAINTEXT, Config, ConfigError, Listener, parse_properties
from barnabas_broker.config.checks import advertise, broker_listeners, check_inter_broker, protocols_of
from barnabas_broker.config.keys import (
    ADVERTISED_LISTENERS,
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUTHORIZER_CLASS_NAME,
    BROKER_ID,
    CLUSTER_URL,
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    EVENT_LOOP_WATCHDOG_MS,
    FETCH_SESSION_PARTITIONS,
    FETCH_SESSION_SLOTS,
    HTTP_MAX_CONNECTIONS,
    HTTP_SSL_CAFILE,
    HTTP_SSL_CERTFILE,
    HTTP_SSL_KEYFILE,
    HTTP_TOKEN_FILE,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
    LOG_DIR_MODE,
    LOG_DIRS,
    NODE_ID,
    QUEUED_MAX_RESPONSE_BYTES,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
    REQUEST_TIMEOUT_MS,
    SUPER_USERS,
)
from barnabas_broker.coordinators.partitions import CoordinatorPartitions
from barnabas_broker.errors import BrokerError
from barnabas_broker.groups.consumer.assignment import Topic
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.handlers.context import RequestContext, Services
from barnabas_broker.handlers.dispatch import Dispatch, api_version
from barnabas_broker.handlers.markers import client_id_of_coordinator, write_markers
from barnabas_broker.handlers.table import TableError, join
from barnabas_broker.http.hosts import AllowedHosts
from barnabas_broker.http.login import Login, is_loopback, open_to_all, read_token
from barnabas_broker.http.samples import Samples
from barnabas_broker.http.tls import HttpTls, HttpTlsError
from barnabas_broker.http.view import View
from barnabas_broker.logs import logger
from barnabas_broker.offload import Offloaded
from barnabas_broker.optional import require
from barnabas_broker.periodic import PeriodicTimer
from barnabas_broker.preload import preload
from barnabas_broker.quotas.clients import ClientQuotas
from barnabas_broker.quotas.connections import ConnectionQuotas
from barnabas_broker.quotas.rates import Window
from barnabas_broker.regexes import RegexSearch
from barnabas_broker.replication.connection import BrokerConnections, BrokerSecurity
from barnabas_broker.replication.coordinator_logs import CoordinatorTopicLog, GroupEventsLog, TransactionEventsLog
from barnabas_broker.replication.fetcher import Registered, ReplicaFetcherManager
from barnabas_broker.replication.isr import AlterPartitionManager
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.retreat import Retreat
from barnabas_broker.replication.sessions import FetchSessionCache
from barnabas_broker.security.audit import Audit
from barnabas_broker.security.authorizer import Authorizer, parse_super_users
from barnabas_broker.security.sasl import Credentials
from barnabas_broker.security.scram import ScramCredential
from barnabas_broker.server.budget import Budget
from barnabas_broker.server.certificates import Certificates
from barnabas_broker.server.connection import Dispatcher, Peer
from barnabas_broker.server.limits import Limits
from barnabas_broker.server.refusals import Refusals
from barnabas_broker.server.sasl import (
    SaslLogin,
    SaslSettings,
    ScramDirectory,
    open_check,
    own_credentials,
    sasl_settings,
)
from barnabas_broker.server.server import BACKLOG, SocketServer
from barnabas_broker.slicer import Account, Slicer, Work
from barnabas_broker.sockets import bind
from barnabas_broker.storage import ForeignDataError, LogDirectory, LogDirectoryError, TopicPartition
from barnabas_broker.storage.checkpoints import new_id
from barnabas_broker.storage.names import META_PROPERTIES
from barnabas_broker.transactions.service import TransactionCoordinator
from barnabas_broker.watchdog import Watchdog
from barnabas_protocol.durations import seconds
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas_protocol.printable import printable
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.scram import ScramMechanism

__all__ = ["BrokerError", "BrokerServer", "product_version"]

log = logger("broker")

#: Seconds between two runs of storage's maintenance: retention, checkpoints, flushes that are due.
MAINTENANCE_SECONDS: Final = 1.0
#: Seconds between two looks at the lease.
LEASE_SECONDS: Final = 0.5
#: Seconds that a stop waits for responses that are not sent yet.
GRACE_SECONDS: Final = 5.0

#: Puts a dispatcher in front of the broker's own.
WrapDispatcher = Callable[[Dispatch], Dispatcher]


@cache
def product_version() -> str:
    """The installed version of Barnabas."""
    try:
        return version("barnabas")
    except PackageNotFoundError:
        return "unknown"


@dataclass(eq=False, repr=False)
class BrokerServer:
    """A running broker in this event loop: a single one, or one of a cluster (``cluster.url``). See :meth:`start`.

    Attributes:
        config: its configuration, with the values that were worked out at the start.
        node_id: its id.
        listeners: where it listens, with the ports in use.
        http_host: the address of metrics and health.
        http_port: their port; None if they are not served.
        failed: set when this broker of a cluster must stop, because it cannot write any more and others can lead.
        services: the parts that handlers use.
        directory: its logs.
        server: its connections.
        dispatch: its handlers.
        view: what the HTTP endpoint shows.
        certificates: those of the listeners that speak TLS.
        maintain: runs the maintenance of the logs that is due, as a timer does every second.
    """

    config: Config
    node_id: int
    listeners: tuple[Listener, ...]
    http_host: str
    http_port: int | None
    failed: asyncio.Event
    services: Services
    directory: LogDirectory
    server: SocketServer
    dispatch: Dispatch
    view: View
    certificates: Certificates
    maintain: Callable[[], None]
    _http_tls: HttpTls | None
    _opened: AsyncExitStack
    _started: float

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
        async with AsyncExitStack() as stack:
            try:
                return await cls._start(
                    stack,
                    config,
                    host,
                    port,
                    http_host,
                    http_port,
                    http_allow_hosts,
                    http_show_records,
                    http_insecure,
                    wrap_dispatcher,
                    users,
                    Clock() if clock is None else clock,
                )
            except ForeignDataError as error:
                raise ConfigError(f"{error}. To do: change log.dirs, node.id or cluster.url") from error
            except (LogDirectoryError, ClusterError, TableError) as error:
                raise BrokerError(str(error)) from error

    @classmethod
    async def _start(
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
        users: Mapping[str, str],
        clock: Clock,
    ) -> Self:
        began = time.monotonic()
        preload()
        config = Config(config.keys, dict(config.given))
        node_id = config[NODE_ID]
        # The ports before anything else: a port in use is the commonest reason why a broker cannot start.
        listeners, sockets, certificates, logins, own = _bind_listeners(stack, config, host, port)
        http = None if http_port is None else _bind_http(stack, config, http_host, http_port, insecure=http_insecure)
        checks = {
            name: await open_check(settings.bearer, name, wall_ms, stack)
            for name, settings in logins.items()
            if settings.bearer is not None
        }
        routes = join()
        advertised = advertise(listeners, broker_listeners(config, ADVERTISED_LISTENERS), socket.gethostname())
        # DescribeConfigs shows what was worked out as if it had been configured.
        config.set_static(LISTENERS, ",".join(map(str, listeners)))
        config.set_static(ADVERTISED_LISTENERS, ",".join(map(str, advertised)))
        config.given |= {key.name: str(node_id) for key in (NODE_ID, BROKER_ID)}
        config.given.setdefault(LOG_DIRS.name, config[LOG_DIRS])

        endpoints = {each.name: (each.host, each.port) for each in advertised}
        open_data = _open_shared if config[CLUSTER_URL] else _open_alone
        directory, cluster, member, recovery = await open_data(stack, config, node_id, endpoints, clock)
        image = cluster.image

        def configure(image: Image, events: Sequence[Event], *, compare: bool = True) -> None:
            """Apply the configuration that was set at run time: for all brokers (""), then for this one."""
            if any(isinstance(event, BrokerConfigured) for event in events):
                before = config.dynamic
                config.set_dynamic(image.broker_configs.get(str(node_id), {}), image.broker_configs.get("", {}))
                mine = any(isinstance(event, BrokerConfigured) and event.name == str(node_id) for event in events)
                if mine and (before or config.dynamic):
                    certificates.apply(compare=compare)

        configure(image, image.snapshot(), compare=False)
        certificates.advertise({each.name: each.host for each in advertised})
        cluster.subscribe(configure)

        replicas = ReplicaManager(
            directory, config, node_id, clock.wall_ms, now=time.monotonic, may_serve=cluster.may_serve
        )
        regexes = RegexSearch(Offloaded(stack, "regex-compile"), Offloaded(stack, "regex-match"))
        stack.callback(regexes.close)
        groups = GroupCoordinator(
            config,
            CoordinatorTopicLog(OFFSETS_TOPIC, replicas, clock.wall_ms),
            now=clock.now,
            wall_ms=clock.wall_ms,
            loop=clock,
            new_id=lambda: str(uuid.uuid4()),
            events=GroupEventsLog(replicas, clock.wall_ms),
            offload=Offloaded(stack, "assignor"),
            regexes=regexes,
        )
        group_partitions = CoordinatorPartitions(OFFSETS_TOPIC, groups, replicas, cluster.may_serve)
        between = config[INTER_BROKER_LISTENER_NAME]
        security = BrokerSecurity(certificates.of(between), own)

        def address(node_id: int) -> tuple[str, int] | None:
            broker = cluster.image.brokers.get(node_id)
            return None if broker is None else broker.endpoints.get(between)

        def leader(where: TopicPartition) -> int | None:
            topic = cluster.image.topics.get(where.topic)
            return (
                topic.partitions[where.partition].leader if topic and where.partition < len(topic.partitions) else None
            )

        if config[EVENT_LOOP_WATCHDOG_MS]:
            stack.callback(Watchdog(config[EVENT_LOOP_WATCHDOG_MS] / 1000).stop)
        slicer = Slicer(time.monotonic, time.thread_time)
        own_work = Account()
        scram_users = ScramDirectory(lambda: cluster.image.users)

        async def write_here(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
            """Write the markers of this broker's coordinator to partitions that this broker leads."""
            timeout = config[REQUEST_TIMEOUT_MS] / 1000
            refused_markers = transactions.refused_markers
            steps = write_markers(replicas, groups, clock.wall_ms(), request, timeout, refused_markers)
            answer = slicer.run(steps, own_work)
            if isinstance(answer, Work):
                answer = await answer
            return answer if isinstance(answer, WriteTxnMarkersResponse) else await answer

        peers = BrokerConnections(client_id_of_coordinator(node_id), address, security)
        transactions = TransactionCoordinator(
            config,
            node_id,
            CoordinatorTopicLog(TRANSACTIONS_TOPIC, replicas, clock.wall_ms),
            leader,
            write_here,
            peers,
            cluster.next_producer_id,
            TransactionEventsLog(replicas, clock.wall_ms),
            now=clock.now,
            wall_ms=clock.wall_ms,
            scheduler=clock,
        )
        transaction_partitions = CoordinatorPartitions(
            TRANSACTIONS_TOPIC, transactions.runtime, replicas, cluster.may_serve
        )
        audit = Audit(time.monotonic)
        stack.callback(audit.close)
        authorizer = _authorizer(config, cluster, audit)
        limits = Limits(config, (each.name for each in listeners))
        conditions = Conditions()
        conditions.add(directory.conditions)
        conditions.add(replicas.conditions)
        if member is not None:
            conditions.add(member.conditions)
        # What was given before the start has to be valid in any case.
        connection_quotas = ConnectionQuotas(limits.of(Config(config.keys, config.given)), _window(config))
        quotas = _client_quotas(config, cluster, connection_quotas)
        responses = Budget(config[QUEUED_MAX_RESPONSE_BYTES])
        refusals = Refusals()
        services = Services(
            config=config,
            node_id=node_id,
            cluster=cluster,
            replicas=replicas,
            quotas=quotas,
            now=time.monotonic,
            fetch_sessions=FetchSessionCache(
                config[FETCH_SESSION_SLOTS], config[FETCH_SESSION_PARTITIONS], lambda: random.randrange(1, 2**31)
            ),
            groups=groups,
            group_partitions=group_partitions,
            transactions=transactions,
            transaction_partitions=transaction_partitions,
            wall_ms=clock.wall_ms,
            regexes=regexes,
            slicer=slicer,
            responses=responses,
            api_versions=[api_version(routes[key]) for key in sorted(routes)],
            refusals=refusals,
            audit=audit,
            authorizer=authorizer,
            certificates=certificates,
            limits=limits,
            conditions=conditions,
        )
        dispatch = Dispatch(services, routes)
        stack.callback(dispatch.close)
        stack.callback(slicer.close)

        def identified(peer: Peer) -> None:
            audit.logged_in(peer.principal, peer.host, peer.listener, "certificate")

        server = SocketServer(
            config,
            wrap_dispatcher(dispatch),
            time.monotonic,
            refusals,
            responses,
            connection_quotas,
            slicer,
            identified,
        )

        def limit(image: Image, events: Sequence[Event]) -> None:
            """Take the limits of connections that were set at run time."""
            if any(isinstance(event, BrokerConfigured) and event.name in ("", str(node_id)) for event in events):
                try:
                    server.limit(limits.of(config))
                except ConfigError as error:
                    log.error("limits of connections not changed, the earlier ones stay", reason=str(error))

        limit(image, image.snapshot())
        cluster.subscribe(limit)
        view = View(
            node_id=node_id,
            version=product_version(),
            cluster=cluster,
            replicas=replicas,
            groups=groups,
            transactions=transactions,
            directory=directory,
            server=server,
            requests=dispatch.metrics,
            quotas=quotas,
            history=groups.journal,
            now=clock.now,
            wall_ms=clock.wall_ms,
            config=config,
            samples=Samples(),
            conditions=conditions,
            shows_records=http_show_records or (is_loopback(http_host) and not logins and not certificates),
            lifecycle=None if member is None else member.lifecycle,
        )
        conditions.add(view.loading)

        async def end_requests() -> None:
            # Together: no further request is started, and the coordinator answers the requests that are deferred.
            await asyncio.gather(server.stop(GRACE_SECONDS), groups.close(), transactions.close())
            await peers.close()

        allowed = AllowedHosts([http_host, socket.gethostname(), *http_allow_hosts], "--http-allow-host")
        endpoint = None
        if http is not None:
            endpoint = http.endpoint_class(
                view, http.listener, allowed, http.login, http.tls, audit.wrong_token, config[HTTP_MAX_CONNECTIONS]
            )
        if endpoint is not None:
            stack.push_async_callback(endpoint.stop)
        stack.push_async_callback(end_requests)
        stack.callback(replicas.wake_fetches)
        if member is None:
            replicas.start(cluster.image)
        else:
            _start_following(stack, config, node_id, member, replicas, security, conditions)
        stack.callback(group_partitions.close)
        stack.callback(transaction_partitions.close)

        def update_coordinators(image: Image, events: Sequence[Event]) -> None:
            """Give the coordinators the topics of the image, and load or unload their partitions."""
            deleted = [event.name for event in events if isinstance(event, TopicDeleted)]
            if deleted:
                groups.topics_deleted(deleted)
            for event in events:
                if isinstance(event, GroupConfigured):
                    groups.group_configured(event.name, event.configs)
            changed = _changed_topics(image, events)
            counts = {topic.name: len(topic.partitions) for topic in changed}
            groups.topics_changed(counts, _topics_of(image, changed))
            transactions.topics_changed(counts)
            group_partitions.reconcile()
            transaction_partitions.reconcile()

        cluster.subscribe(replicas.image_changed)
        cluster.subscribe(update_coordinators)
        update_coordinators(image, image.snapshot())
        if endpoint is not None:
            await endpoint.start()

        failed = asyncio.Event()

        def maintain() -> None:
            directory.maintain(clock.wall_ms())
            audit.tick()
            groups.report_repeated()
            quotas.tick(time.monotonic())
            if member is not None and directory.failure is not None and not failed.is_set():
                log.error("broker stops, so that others lead its partitions", reason=directory.failure)
                failed.set()

        def check_lease() -> None:
            """Answer what waits for this broker as a leader, if its lease has ended. The coordinators are unloaded
            first. Appends fail that are in the log, and a coordinator that goes on must know all of its log."""
            if member is not None and member.lifecycle.lease_has_ended:
                group_partitions.reconcile()
                transaction_partitions.reconcile()
                replicas.lease_has_ended()

        def stopping() -> None:
            conditions.stopping = True

        if member is not None:
            stack.push_async_callback(member.leave)
        stack.callback(stopping)
        stack.callback(PeriodicTimer(MAINTENANCE_SECONDS, maintain).cancel)
        if member is not None:
            # Connections wait in the backlog: before this broker is a member it could only answer with errors.
            for bound in sockets:
                bound.listen(BACKLOG)
            await member.enter(directory.producer_ids, directory.leader_epochs)
            group_partitions.start()
            transaction_partitions.start()
            stack.callback(PeriodicTimer(LEASE_SECONDS, check_lease).cancel)
        if users:
            await _add_users(cluster, users)
        for listener, bound in zip(listeners, sockets, strict=True):
            settings = logins.get(listener.name)
            login = settings and SaslLogin(settings, scram_users, wall_ms, audit, checks.get(listener.name))
            await server.listen(bound, listener.name, certificates.of(listener.name), login)
        http_port = None if http is None else http.listener.getsockname()[1]
        started = time.monotonic()
        log.info(
            "broker started",
            version=product_version(),
            pid=os.getpid(),
            node_id=node_id,
            cluster_id=image.cluster_id,
            data=str(directory.path.absolute()),
            listeners=config.given[LISTENERS.name],
            advertised=config.given[ADVERTISED_LISTENERS.name],
            **({} if http_port is None else {"http": f"{http_host}:{http_port}"}),
            recovery=seconds(recovery),
            took=seconds(started - began),
        )
        return cls(
            config,
            node_id,
            listeners,
            http_host,
            http_port,
            failed,
            services,
            directory,
            server,
            dispatch,
            view,
            certificates,
            maintain,
            None if http is None else http.tls,
            stack.pop_all(),
            started,
        )

    @property
    def host(self) -> str:
        """The address of the first listener."""
        return self.listeners[0].host

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.listeners[0].port

    @property
    def has_certificates(self) -> bool:
        """Whether anything speaks TLS here."""
        return bool(self.certificates) or self._http_tls is not None

    def reload_certificates(self) -> None:
        """Read all certificates again. One that cannot be used is logged, and the earlier one stays."""
        self.certificates.reload()
        if self._http_tls is not None:
            try:
                self._http_tls.reload()
            except HttpTlsError as error:
                log.error("certificate of HTTP not reloaded, the earlier one stays", reason=str(error))
            else:
                log.info("certificate of HTTP reloaded")

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

    async def load_groups(self) -> None:
        """Wait until groups can be coordinated, and have been loaded if this broker coordinates them."""
        await self.ask(ApiKey.FIND_COORDINATOR, FindCoordinatorRequest(coordinator_keys=["any"]), "")
        await asyncio.gather(*self.services.group_partitions.loading)

    async def add_users(self, passwords: Mapping[str, str]) -> Collection[str]:
        """Add users for each mechanism of SCRAM, unless they exist; the names of the new ones.

        Raises:
            BrokerError: the metadata cannot be changed.
        """
        return await _add_users(self.services.cluster, passwords)

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
            uptime = seconds(began - self._started)
            log.info("broker stops", node_id=self.node_id, reason=reason, uptime=uptime)
        await self._opened.aclose()
        if first:
            log.info("broker stopped", node_id=self.node_id, reason=reason, took=seconds(time.monotonic() - began))


class _Http(NamedTuple):
    """A bound socket for HTTP, who may use it, and what serves on it.

    Attributes:
        listener: the socket.
        endpoint_class: an :class:`~barnabas_broker.http.endpoint.Endpoint`.
        login: what requests need.
        tls: the certificate; None for plain HTTP.
    """

    listener: socket.socket
    endpoint_class: Any
    login: Login
    tls: HttpTls | None


class _Data(NamedTuple):
    """The stores of a broker when they are open: on disk, or in etcd.

    Attributes:
        directory: the logs.
        cluster: the metadata.
        member: this broker's part in the cluster; None for a single broker.
        recovery: the seconds that it took to recover the logs.
    """

    directory: LogDirectory
    cluster: ClusterMetadata
    member: ClusterMember | None
    recovery: float


def _authorizer(config: Config, cluster: ClusterMetadata, audit: Audit) -> Authorizer | None:
    """Create the authorizer, which uses the ACLs of the cluster image; None if there is none.

    Raises:
        ConfigError: super.users cannot be read.
    """
    if not config[AUTHORIZER_CLASS_NAME]:
        return None
    try:
        super_users = parse_super_users(config[SUPER_USERS])
    except ValueError as error:
        raise ConfigError(f"{SUPER_USERS.name}: {error}") from None
    authorizer = Authorizer(
        super_users, allow_everyone=config[ALLOW_EVERYONE_IF_NO_ACL_FOUND], refused=audit.not_authorized
    )
    authorizer.change(added=cluster.image.acls)

    def change(image: Image, events: Sequence[Event]) -> None:
        changed = [event.binding for event in events if isinstance(event, AclCreated | AclDeleted)]
        if changed:
            authorizer.change(
                added=[binding for binding in changed if binding in image.acls],
                removed=[binding for binding in changed if binding not in image.acls],
            )

    cluster.subscribe(change)
    return authorizer


def _window(config: Config) -> Window:
    """How the rates of clients and connections are measured."""
    return Window(config[QUOTA_WINDOW_NUM], config[QUOTA_WINDOW_SIZE_SECONDS])


def _client_quotas(config: Config, cluster: ClusterMetadata, connections: ConnectionQuotas) -> ClientQuotas:
    """The quotas of users and clients as they are in the cluster image; those of addresses go to `connections`."""
    quotas = ClientQuotas(
        _window(config),
        Window(config[CONTROLLER_QUOTA_WINDOW_NUM], config[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS]),
    )

    def change(image: Image, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ClientQuotaSet | ClientQuotaRemoved):
                limit = image.quotas.get(event.entity, {}).get(event.key)
                quotas.set(event.entity, event.key, limit)
                connections.set(event.entity, event.key, limit)

    change(cluster.image, cluster.image.snapshot())
    cluster.subscribe(change)
    return quotas


def _changed_topics(image: Image, events: Sequence[Event]) -> Collection[TopicInfo]:
    """The topics that events have created or changed: with thousands of topics, a new one must not cost as much as all.
    All topics if brokers come or go, which have racks."""
    names = set()
    for event in events:
        match event:
            case BrokerRegistered() | BrokerFenced():
                return image.topics.values()
            case TopicCreated() | PartitionsAdded() | PartitionChanged():
                names.add(event.name)
    return [image.topics[name] for name in names if name in image.topics]


def _topics_of(image: Image, topics: Iterable[TopicInfo]) -> Iterator[Topic]:
    """Topics of an image, as the group coordinator sees them."""
    racks = {node_id: broker.rack for node_id, broker in image.brokers.items()}
    some_rack = any(racks.values())
    for topic in topics:
        of_partitions: tuple[tuple[str, ...], ...] = ()
        if some_rack:
            of_partitions = tuple(
                tuple(rack for node_id in info.replicas if (rack := racks.get(node_id))) for info in topic.partitions
            )
        yield Topic(topic.topic_id, topic.name, len(topic.partitions), of_partitions)


async def _open_alone(stack: AsyncExitStack, config: Config, node_id: int, endpoints: Endpoints, clock: Clock) -> _Data:
    """Open the data directory of a single broker, which keeps the metadata in it."""
    path = Path(config[LOG_DIRS])
    began = time.monotonic()
    directory = LogDirectory.open(path, config, node_id=node_id, now_ms=clock.wall_ms(), now=clock.now)
    recovery = time.monotonic() - began
    stack.callback(lambda: directory.close(clock.wall_ms()))
    store = LocalStore(path, int(config[LOG_DIR_MODE], 8) & 0o666)
    stack.push_async_callback(store.close)
    if directory.logs and not store.exists():
        raise ConfigError(f"{path} belongs to a broker of cluster {directory.cluster_id}: start it with --cluster")
    loaded = await store.load()
    image = Image(cluster_id=directory.cluster_id, controller_id=node_id).apply_all(loaded.events)
    cluster = ClusterMetadata(image.apply(BrokerRegistered(node_id, endpoints)), store, loaded.sequence)
    return _Data(directory, cluster, None, recovery)


async def _open_shared(
    stack: AsyncExitStack, config: Config, node_id: int, endpoints: Endpoints, clock: Clock
) -> _Data:
    """Open the data directory of a broker of a cluster, whose metadata is in etcd."""
    path = Path(config[LOG_DIRS])
    if (path / METADATA_JOURNAL).exists():
        raise ConfigError(f"{path} belongs to a single broker: start it without --cluster, or give another --data-dir")
    async with AsyncExitStack() as reached:
        connection = open_cluster(config)
        reached.push_async_callback(connection.close)
        cluster_id = await connection.cluster_id(_cluster_of(path), new_id(os.urandom(16)))
        began = time.monotonic()
        directory = LogDirectory.open(
            path, config, node_id=node_id, now_ms=clock.wall_ms(), now=clock.now, cluster_id=cluster_id
        )
        recovery = time.monotonic() - began
        stack.callback(lambda: directory.close(clock.wall_ms()))
        # Opened before the directory, whose cluster it names, but closed before it as well.
        await stack.enter_async_context(reached.pop_all())
    member = await connection.load(
        cluster_id, node_id, endpoints, directory.directory_id, path, intact=directory.intact
    )

    def note_epochs() -> None:
        directory.intact = member.lifecycle.me.intact

    stack.callback(note_epochs)
    stack.push_async_callback(member.close)
    return _Data(directory, member.cluster, member, recovery)


def _start_following(
    stack: AsyncExitStack,
    config: Config,
    node_id: int,
    member: ClusterMember,
    replicas: ReplicaManager,
    security: BrokerSecurity,
    conditions: Conditions,
) -> None:
    """Host partitions in a cluster: follow their leaders, and keep the ISR of the partitions that are led here."""
    cluster, lifecycle = member.cluster, member.lifecycle
    between = config[INTER_BROKER_LISTENER_NAME]

    def registered(leader: int) -> Registered | None:
        broker = cluster.image.brokers.get(leader)
        if broker is None or between not in broker.endpoints:
            return None
        return Registered(*broker.endpoints[between], broker.epoch)

    def check_listener(image: Image, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, BrokerRegistered) and between not in event.endpoints:
                log.error(
                    "broker cannot be followed: it has no such listener, see inter.broker.listener.name",
                    leader=event.node_id,
                    listener=between,
                    listeners=",".join(event.endpoints),
                )

    async def propose(changes: Sequence[IsrChange]) -> None:
        await cluster.change(lambda image: alter_isr(image, node_id, lifecycle.epoch, changes))

    async def report(ends: Sequence[LogEnd]) -> None:
        await cluster.change(lambda image: (report_log_ends(image, node_id, lifecycle.epoch, ends), None))

    async def leave(withdrawals: Sequence[Withdrawal]) -> None:
        def decide(image: Image) -> tuple[Sequence[Event], bool]:
            events = withdraw(image, node_id, lifecycle.epoch, withdrawals)
            return events, bool(events)

        while await cluster.change(decide):
            pass

    check_listener(cluster.image, cluster.image.snapshot())
    cluster.subscribe(check_listener)
    fetchers = ReplicaFetcherManager(
        config,
        node_id,
        registered,
        lifecycle.process_ended,
        lambda: lifecycle.epoch,
        lifecycle.me.directory,
        wall_ms,
        security,
        may_fetch=lambda: not retreat.active,
    )
    stack.push_async_callback(fetchers.close)
    retreat = Retreat(
        replicas.directory,
        node_id,
        lambda: cluster.image,
        member.min_isr,
        leave,
        fetchers.resume,
        time.monotonic,
    )
    stack.push_async_callback(retreat.close)
    isr = AlterPartitionManager(replicas, config, lambda: cluster.image.brokers, propose, report, leave, time.monotonic)
    stack.push_async_callback(isr.close)
    replicas.start(cluster.image, fetchers.follow, isr.caught_up)
    lifecycle.lost = replicas.lost
    fetchers.image_changed(cluster.image, cluster.image.snapshot())
    cluster.subscribe(fetchers.image_changed)
    cluster.subscribe(retreat.image_changed)
    conditions.add(retreat.conditions)


def _cluster_of(path: Path) -> str | None:
    """The cluster that a data directory belongs to; None for a new one.

    Raises:
        BrokerError: its properties cannot be read.
    """
    try:
        properties = parse_properties((path / META_PROPERTIES).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BrokerError(f"{path / META_PROPERTIES} cannot be read: {error}") from error
    return properties.get("cluster.id")


async def _add_users(cluster: ClusterMetadata, passwords: Mapping[str, str]) -> Collection[str]:
    """Add users for each mechanism of SCRAM, unless they exist; the names of the new ones.

    Raises:
        BrokerError: the metadata cannot be changed.
    """
    known = {user for user, _ in cluster.image.users.credentials}
    new = {
        (user, mechanism): ScramCredential.of_password(mechanism, password, os.urandom(16))
        for user, password in passwords.items()
        if user not in known
        for mechanism in ScramMechanism
    }
    try:
        added = await cluster.change(lambda image: add_users(image, new, lambda: os.urandom(32)))
    except KafkaError as error:
        raise BrokerError(f"users cannot be added: {error}") from error
    for user in added:
        log.info("user added", user=printable(user))
    return added


def _bind_listeners(
    stack: AsyncExitStack, config: Config, host: str, port: int
) -> tuple[tuple[Listener, ...], list[socket.socket], Certificates, dict[str, SaslSettings], Credentials | None]:
    """The listeners with the ports in use, a bound socket for each, their certificates, how clients log in, and by what
    this broker logs in to others.

    Raises:
        ConfigError: the listeners contradict other keys.
        BrokerError: an address does not exist or is in use.
    """
    wanted = broker_listeners(config, LISTENERS) or (Listener(PLAINTEXT, host, port),)
    protocols = protocols_of(wanted, config[LISTENER_SECURITY_PROTOCOL_MAP])
    check_inter_broker(config, wanted)
    certificates, logins = Certificates(config, protocols), sasl_settings(config, protocols)
    between = config[INTER_BROKER_LISTENER_NAME]
    own = own_credentials(config, between) if config[CLUSTER_URL] and between in logins else None
    sockets = [stack.enter_context(closing(bind(each.host, each.port))) for each in wanted]
    listeners = tuple(
        Listener(each.name, each.host, bound.getsockname()[1]) for each, bound in zip(wanted, sockets, strict=True)
    )
    return listeners, sockets, certificates, logins, own


def _bind_http(stack: AsyncExitStack, config: Config, host: str, port: int, *, insecure: bool) -> _Http:
    """Bind the socket for the page, metrics and health.

    Raises:
        ConfigError: the address is not a loopback address, and there is no login; or a file cannot be used.
        BrokerError: aiohttp is not installed, or the address does not exist or is in use.
    """
    module = require("barnabas_broker.http.endpoint", wanted_by="--http-port", extra="http")
    certificate, authority = config[HTTP_SSL_CERTFILE], config[HTTP_SSL_CAFILE]
    if authority and not certificate:
        raise ConfigError("http.ssl.cafile needs http.ssl.certfile: clients show a certificate over TLS only")
    try:
        tls = HttpTls.of(certificate, config[HTTP_SSL_KEYFILE], authority) if certificate else None
        token = read_token(config[HTTP_TOKEN_FILE]) if config[HTTP_TOKEN_FILE] else None
        login = Login(token, certificates=bool(authority))
        remedies = "give --http-token-file FILE, or http.ssl.certfile and http.ssl.cafile, or --http-insecure"
        exposed = open_to_all(host, login, insecure=insecure, remedies=remedies)
    except HttpTlsError as error:
        raise ConfigError(f"http.ssl: {error}") from error
    except ValueError as error:
        raise ConfigError(f"HTTP: {error}") from None
    listener = stack.enter_context(closing(bind(host, port)))
    if exposed:
        log.warning("HTTP has no login: everyone who can reach it may read it", host=host, port=port)
    return _Http(listener, module.Endpoint, login, tls)
