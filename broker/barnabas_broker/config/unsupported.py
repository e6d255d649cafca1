"""The configuration keys of Apache Kafka 4.4 that the broker does not serve, and what it does when one is set.

Most have no effect: the broker names them in a warning. A few are refused, because the broker would otherwise do less
than the operator counts on, such as checking what clients may do; a refused key may be set to Kafka's own default,
which asks for nothing.
"""

from typing import Any, Final, NamedTuple

from barnabas_broker.config.keys import ConfigType, Key, plain


class Unserved(NamedTuple):
    """A key of Apache Kafka that is not served.

    Attributes:
        name: Kafka's name.
        default: Kafka's default as text; "" for none.
        doc: what it does in Kafka.
        group: what it belongs to.
        why: why it is not served.
        refused: whether the broker refuses to start with any value but the default; otherwise it warns.
    """

    name: str
    default: str
    doc: str
    group: str
    why: str
    refused: bool


def _group(group: str, why: str, rows: str, *, refused: bool = False) -> dict[str, Unserved]:
    """Keys for which the same holds; a row is ``name | default | what it does``."""
    keys = (tuple(cell.strip() for cell in row.split("|")) for row in rows.strip().splitlines())
    return {name: Unserved(name, default, doc, group, why, refused) for name, default, doc in keys}


UNSERVED: Final[dict[str, Unserved]] = {
    **_group(
        "Access and policies",
        "Barnabas loads no Java classes, and without this one clients could do what you forbid",
        """
        principal.builder.class | \
            org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder | \
            The class that turns a connection into a principal.
        create.topic.policy.class.name | | The class that decides which topics may be created.
        alter.config.policy.class.name | | The class that decides which configurations may be changed.
        client.quota.callback.class | | The class that sets the quotas of clients.
        """,
        refused=True,
    ),
    **_group(
        "Values from elsewhere",
        "values are not fetched from other places",
        """
        config.providers | | Names of plugins that fetch values such as ${file:...}.
        """,
        refused=True,
    ),
    **_group(
        "Tiered storage",
        "tiered storage is not served, so that old records would stay on the local disk, or be gone",
        """
        remote.log.storage.system.enable | false | Whether old segments are moved to a remote store.
        """,
        refused=True,
    ),
    **_group(
        "Placement of data",
        "Barnabas keeps data and metadata in the one directory of log.dirs, and can take no part of it out of use",
        """
        metadata.log.dir | | The directory of the metadata log; log.dirs is accepted, too.
        cordoned.log.dirs | | Directories that get no new partitions.
        """,
        refused=True,
    ),
    **_group(
        "Controllers",
        "brokers coordinate through etcd (cluster.url), not through a controller quorum",
        """
        controller.performance.always.log.threshold.ms | 2000 | Controller events that take longer are logged.
        controller.performance.sample.period.ms | 60000 | How often the controller logs its timing.
        controller.quorum.append.linger.ms | 25 | How long a controller collects changes before it writes them.
        controller.quorum.auto.join.enable | false | Whether a controller joins the quorum by itself.
        controller.quorum.bootstrap.servers | | Addresses of controllers; more than one needs cluster.url.
        controller.quorum.election.backoff.max.ms | 1000 | The longest wait before another election.
        controller.quorum.election.timeout.ms | 1000 | How long an election may take.
        controller.quorum.fetch.max.bytes | 1048576 | Most bytes of one fetch between controllers.
        controller.quorum.fetch.snapshot.max.bytes | 1048576 | Most bytes of one snapshot fetch between controllers.
        controller.quorum.fetch.timeout.ms | 2000 | Time without the leader after which a new one is elected.
        controller.quorum.request.timeout.ms | 2000 | How long a request between controllers may take.
        controller.quorum.retry.backoff.ms | 20 | Wait before a request between controllers is repeated.
        controller.quorum.voters | | The controllers, as ID@HOST:PORT; more than one needs cluster.url.
        controller.socket.timeout.ms | 30000 | How long a connection to a controller may stay silent.
        broker.heartbeat.interval.ms | 2000 | How often a broker reports to the controller; here the lease is renewed.
        initial.broker.registration.timeout.ms | 60000 | How long the first registration may take.
        internal.metadata.delete.delay.millis | 60000 | Delay before old metadata files are deleted.
        internal.metadata.log.segment.bytes | | Segment size of the metadata log, for tests.
        internal.metadata.max.batch.size.in.bytes | 8388608 | Largest batch of the metadata log.
        log.dir.failure.timeout.ms | 30000 | How long a broker may fail to report a failed directory.
        metadata.log.max.record.bytes.between.snapshots | \
            20971520 | \
            Bytes of metadata after which a snapshot is written.
        metadata.log.max.snapshot.interval.ms | 3600000 | Time after which a snapshot is written.
        metadata.log.segment.bytes | 1073741824 | Segment size of the metadata log.
        metadata.log.segment.ms | 604800000 | Age after which a metadata segment is rolled.
        metadata.max.idle.interval.ms | 500 | How often an idle controller writes a record.
        metadata.max.retention.bytes | 104857600 | Size of the metadata that is kept.
        metadata.max.retention.ms | 604800000 | Age of the metadata that is kept.
        server.max.startup.time.ms | 9223372036854775807 | How long a start may take.
        unclean.leader.election.interval.ms | \
            300000 | \
            How often the controller looks for partitions that need an unclean election.
        """,
    ),
    **_group(
        "Threads and buffers",
        "one event loop serves all connections, and the system sizes its buffers",
        """
        background.threads | 10 | Threads for background tasks.
        group.consumer.assignor.offload.enable | true | Whether assignors run in threads of their own.
        num.io.threads | 8 | Threads that process requests.
        num.network.threads | 3 | Threads that read requests and write responses.
        num.recovery.threads.per.data.dir | 2 | Threads that recover logs at the start.
        num.replica.alter.log.dirs.threads | | Threads that move replicas between directories.
        num.replica.fetchers | 1 | Threads that follow one leader.
        group.coordinator.threads | 4 | Threads of the group coordinator.
        group.coordinator.background.threads | 2 | Threads for its background tasks.
        group.coordinator.append.linger.ms | \
            -1 | \
            How long it collects records before it writes them; here one iteration of the event loop.
        group.coordinator.cached.buffer.max.bytes | 1048588 | Largest buffer that it keeps.
        share.coordinator.append.linger.ms | -1 | How long the share coordinator collects records.
        share.coordinator.cached.buffer.max.bytes | 1048588 | Largest buffer that it keeps.
        share.coordinator.load.buffer.size | 5242880 | Bytes read at a time while its state is loaded.
        share.coordinator.state.topic.compression.codec | 0 | Codec of __share_group_state; it is stored uncompressed.
        share.coordinator.threads | 1 | Threads of the share coordinator.
        offsets.load.buffer.size | 5242880 | Bytes read at a time while committed offsets are loaded.
        offsets.topic.compression.codec | 0 | Codec of __consumer_offsets; records are stored uncompressed.
        queued.max.requests | 500 | Requests that wait for a thread; here 512 for each connection.
        socket.listen.backlog.size | 50 | Connections that wait to be accepted.
        socket.receive.buffer.bytes | 102400 | Receive buffer of connections.
        socket.send.buffer.bytes | 102400 | Send buffer of connections.
        replica.socket.receive.buffer.bytes | 65536 | Receive buffer of a follower's connection.
        socket.connection.setup.timeout.ms | 10000 | How long the broker's own connections may take to open.
        socket.connection.setup.timeout.max.ms | 30000 | The longest such time after failures.
        delete.records.purgatory.purge.interval.requests | 1 | How often finished waits of DeleteRecords are purged.
        fetch.purgatory.purge.interval.requests | 1000 | How often finished waits of Fetch are purged.
        producer.purgatory.purge.interval.requests | 1000 | How often finished waits of Produce are purged.
        share.fetch.purgatory.purge.interval.requests | 1000 | How often finished waits of ShareFetch are purged.
        max.request.partition.size.limit | \
            2000 | \
            Most partitions in a response of DescribeTopicPartitions; always 2,000.
        """,
    ),
    **_group(
        "Storage",
        "the log manages this by itself",
        """
        compression.gzip.level | -1 | Level of gzip; batches stay as producers compressed them.
        compression.lz4.level | 9 | Level of lz4; likewise.
        compression.zstd.level | 3 | Level of zstd; likewise.
        log.cleaner.dedupe.buffer.size | 134217728 | Memory of the cleaner for keys.
        log.cleaner.io.buffer.load.factor | 0.9 | How full that memory may get.
        log.cleaner.io.buffer.size | 524288 | Buffers of the cleaner for reads and writes.
        log.cleaner.threads | 1 | Threads of the cleaner; always one.
        log.flush.scheduler.interval.ms | \
            9223372036854775807 | \
            How often the broker looks for flushes that are due; always every second.
        log.flush.start.offset.checkpoint.interval.ms | \
            60000 | \
            How often log start offsets are saved; they are saved when they change.
        log.initial.task.delay.ms | 30000 | Delay of the first retention check.
        log.preallocate | false | Whether files get their full size at once.
        log.roll.jitter.hours | 0 | Random part of log.roll.hours.
        log.roll.jitter.ms | | Random part of log.roll.ms.
        producer.id.expiration.check.interval.ms | 600000 | How often idle producers are looked for.
        replica.high.watermark.checkpoint.interval.ms | 5000 | How often high watermarks are saved.
        replica.selector.class | | The class that chooses a replica for a consumer; consumers read from the leader.
        """,
    ),
    **_group(
        "Decompression",
        "message.max.decompressed.bytes says how far the broker decompresses a batch",
        """
        max.decompressed.message.bytes | 2147483639 | Largest decompressed size of a batch.
        """,
    ),
    **_group(
        "Tiered storage",
        "tiered storage is not served",
        """
        follower.fetch.last.tiered.offset.enable | false | Whether a new follower skips records in the remote store.
        log.local.retention.bytes | -2 | Bytes that stay on the local disk.
        log.remote.copy.lag.bytes | -1 | Bytes that stay out of the remote store.
        log.remote.copy.lag.ms | 0 | Time that records stay out of the remote store.
        log.local.retention.ms | -2 | Time that records stay on the local disk.
        remote.fetch.max.wait.ms | 500 | How long a fetch may wait for the remote store.
        remote.list.offsets.request.timeout.ms | 30000 | How long ListOffsets may wait for the remote store.
        remote.log.index.file.cache.total.size.bytes | 1073741824 | Size of the cache of remote indexes.
        remote.log.index.file.cache.ttl.ms | 900000 | How long an index stays in that cache.
        remote.log.manager.copier.thread.pool.size | 10 | Threads that copy segments.
        remote.log.manager.copy.max.bytes.per.second | 9223372036854775807 | Most bytes copied in a second.
        remote.log.manager.copy.quota.window.num | 11 | Windows of that quota.
        remote.log.manager.copy.quota.window.size.seconds | 1 | Length of these windows.
        remote.log.manager.expiration.thread.pool.size | 10 | Threads that delete remote segments.
        remote.log.manager.fetch.max.bytes.per.second | 9223372036854775807 | Most remote bytes read in a second.
        remote.log.manager.fetch.quota.window.num | 11 | Windows of that quota.
        remote.log.manager.fetch.quota.window.size.seconds | 1 | Length of these windows.
        remote.log.manager.follower.thread.pool.size | 2 | Threads for followed partitions.
        remote.log.manager.task.interval.ms | 30000 | How often segments are copied and deleted.
        remote.log.manager.task.retry.backoff.max.ms | 30000 | The longest wait after a failure.
        remote.log.manager.task.retry.backoff.ms | 500 | The first wait after a failure.
        remote.log.manager.task.retry.jitter | 0.2 | Random part of that wait.
        remote.log.manager.thread.pool.size | 2 | Threads of the manager.
        remote.log.metadata.custom.metadata.max.bytes | 128 | Most bytes of a plugin's own metadata.
        remote.log.metadata.manager.class.name | \
            org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager | \
            The class that keeps the metadata of remote segments.
        remote.log.metadata.manager.class.path | | Where that class is.
        remote.log.metadata.manager.impl.prefix | rlmm.config. | Prefix of that class's own keys.
        remote.log.metadata.manager.listener.name | | The listener that it connects to.
        remote.log.reader.max.pending.tasks | 100 | Remote reads that may wait.
        remote.log.reader.threads | 10 | Threads for remote reads.
        remote.log.storage.manager.class.name | | The class that reads and writes the remote store.
        remote.log.storage.manager.class.path | | Where that class is.
        remote.log.storage.manager.impl.prefix | rsm.config. | Prefix of that class's own keys.
        """,
    ),
    **_group(
        "Share groups",
        "there is one assignor and one store of their state, assignments are made at once, and topics of dead letters "
        "are created by an operator",
        """
        errors.deadletterqueue.auto.create.topics.enable | false | Whether topics of dead letters are created.
        group.share.assignment.interval.ms | 1000 | Shortest time between two assignments of a share group.
        group.share.assignor.offload.enable | true | Whether assignors of share groups run in threads of their own.
        group.share.assignors | simple | Assignors of share groups.
        group.share.dlq.manager.class.name | \
            org.apache.kafka.server.share.dlq.DefaultShareGroupDLQManager | \
            The class that writes dead letters.
        group.share.initialize.retry.interval.ms | 30000 | Wait before a share group's state is initialized again.
        group.share.max.assignment.interval.ms | 15000 | Largest assignment interval of a share group.
        group.share.min.assignment.interval.ms | 0 | Smallest assignment interval of a share group.
        group.share.persister.class.name | \
            org.apache.kafka.server.share.persister.DefaultStatePersister | \
            The class that keeps the state of share groups.
        """,
    ),
    **_group(
        "Streams groups",
        "streams groups are not served",
        """
        group.coordinator.rebalance.protocols | classic,consumer,streams | The group protocols that are served.
        group.streams.acceptable.recovery.lag | 10000 | Lag at which a task counts as recovered.
        group.streams.assignor.offload.enable | true | Whether assignors of streams groups run in threads of their own.
        group.streams.assignors | sticky | Assignors of streams groups.
        group.streams.max.warmup.replicas | 20 | Largest number of warm-up tasks.
        group.streams.min.task.offset.interval.ms | 15000 | Smallest interval of reports of task offsets.
        group.streams.num.warmup.replicas | 2 | Number of warm-up tasks.
        group.streams.rack.aware.assignment.tags | | Tags by which tasks are spread.
        group.streams.task.offset.interval.ms | 60000 | How often members report task offsets.
        group.streams.topology.description.plugin.class | | The class that stores descriptions of topologies.
        group.streams.assignment.interval.ms | 1000 | Shortest time between two assignments of a streams group.
        group.streams.heartbeat.interval.ms | 5000 | How often members send heartbeats.
        group.streams.initial.rebalance.delay.ms | 3000 | Wait for more members before the first assignment.
        group.streams.max.assignment.interval.ms | 15000 | Largest assignment interval of a streams group.
        group.streams.max.heartbeat.interval.ms | 15000 | Longest heartbeat interval of a streams group.
        group.streams.max.session.timeout.ms | 60000 | Longest session timeout of a streams group.
        group.streams.max.size | 2147483647 | Most members of a streams group.
        group.streams.max.standby.replicas | 2 | Most standby replicas that a group may set.
        group.streams.min.assignment.interval.ms | 0 | Smallest assignment interval of a streams group.
        group.streams.min.heartbeat.interval.ms | 5000 | Shortest heartbeat interval of a streams group.
        group.streams.min.session.timeout.ms | 45000 | Shortest session timeout of a streams group.
        group.streams.num.standby.replicas | 0 | Standby replicas of each task.
        group.streams.session.timeout.ms | 45000 | Time without heartbeats after which a member is removed.
        """,
    ),
    **_group(
        "Transactions",
        "two-phase commit is not served, partitions are always verified, state is read a megabyte at a time, and a "
        "coordinator answers when the last transaction is ended, so that no leader asks it again",
        """
        add.partitions.to.txn.retry.backoff.ms | 20 | Wait until a leader asks again to add a partition.
        transaction.partition.verification.enable | true | Whether writes are checked against the transaction.
        transaction.state.log.load.buffer.size | 5242880 | Bytes read at a time while transactions are loaded.
        transaction.two.phase.commit.enable | false | Whether clients may coordinate transactions themselves.
        """,
    ),
    **_group(
        "TLS of Java",
        "TLS is that of OpenSSL, and a new certificate may have any name",
        """
        ssl.allow.dn.changes | false | Whether a new certificate may have another name.
        ssl.allow.san.changes | false | Whether a new certificate may have other alternative names.
        ssl.keymanager.algorithm | SunX509 | Java's algorithm for key managers.
        ssl.provider | | Java's TLS provider.
        ssl.secure.random.implementation | | Java's random number generator.
        ssl.trustmanager.algorithm | PKIX | Java's algorithm for trust managers.
        security.providers | | Java's security providers.
        """,
    ),
    **_group(
        "TLS",
        "OpenSSL's own choice of cipher suites is used, and a PEM file has no password but that of its key",
        """
        ssl.cipher.suites | | Cipher suites.
        ssl.engine.factory.class | | The class that makes TLS engines.
        ssl.keystore.password | | Password of the key store; of a key in PEM it is ssl.key.password.
        ssl.truststore.password | | Password of the trust store; trusted certificates in PEM have none.
        """,
        refused=True,
    ),
    **_group(
        "SASL and tokens",
        "PLAIN, SCRAM and OAUTHBEARER are served, and brokers do not log in to each other by tokens",
        """
        delegation.token.expiry.check.interval.ms | 3600000 | How often expired tokens are removed.
        delegation.token.expiry.time.ms | 86400000 | Life of a token until it is renewed.
        delegation.token.max.lifetime.ms | 604800000 | Life of a token in all.
        delegation.token.secret.key | | The key that signs tokens.
        early.start.listeners | | Listeners that open before the authorizer is ready.
        sasl.client.callback.handler.class | | The class that gives the broker's own credentials.
        sasl.kerberos.kinit.cmd | /usr/bin/kinit | Path of kinit.
        sasl.kerberos.min.time.before.relogin | 60000 | Shortest time between two logins.
        sasl.kerberos.principal.to.local.rules | DEFAULT | How a Kerberos name becomes a principal.
        sasl.kerberos.service.name | | The Kerberos name of the broker.
        sasl.kerberos.ticket.renew.jitter | 0.05 | Random part of the renewal time.
        sasl.kerberos.ticket.renew.window.factor | 0.8 | Part of a ticket's life after which it is renewed.
        sasl.login.callback.handler.class | | The class that handles login callbacks.
        sasl.login.class | | The class that logs in.
        sasl.login.connect.timeout.ms | | How long a connection to the token provider may take.
        sasl.login.read.timeout.ms | | How long its response may take.
        sasl.login.refresh.buffer.seconds | 300 | Time before expiry in which a token is refreshed.
        sasl.login.refresh.min.period.seconds | 60 | Shortest time between two refreshes.
        sasl.login.refresh.window.factor | 0.8 | Part of a token's life after which it is refreshed.
        sasl.login.refresh.window.jitter | 0.05 | Random part of that time.
        sasl.login.retry.backoff.max.ms | 10000 | Longest wait before a login is tried again.
        sasl.login.retry.backoff.ms | 100 | First wait before a login is tried again.
        sasl.mechanism.controller.protocol | GSSAPI | SASL mechanism towards controllers.
        sasl.oauthbearer.allow.unverified.audience | false | Whether the audience of tokens may stay unchecked.
        sasl.oauthbearer.allow.unverified.issuer | false | Whether the issuer of tokens may stay unchecked.
        sasl.oauthbearer.assertion.algorithm | RS256 | Algorithm that signs an assertion.
        sasl.oauthbearer.assertion.claim.aud | | Audience of an assertion.
        sasl.oauthbearer.assertion.claim.exp.seconds | 300 | Life of an assertion.
        sasl.oauthbearer.assertion.claim.iss | | Issuer of an assertion.
        sasl.oauthbearer.assertion.claim.jti.include | false | Whether an assertion has an id.
        sasl.oauthbearer.assertion.claim.nbf.seconds | 60 | How far in the past an assertion begins to be valid.
        sasl.oauthbearer.assertion.claim.sub | | Subject of an assertion.
        sasl.oauthbearer.assertion.file | | File of a finished assertion.
        sasl.oauthbearer.assertion.private.key.file | | File of the key that signs assertions.
        sasl.oauthbearer.assertion.private.key.passphrase | | Passphrase of that key.
        sasl.oauthbearer.assertion.template.file | | File with further claims.
        sasl.oauthbearer.client.credentials.client.id | | Client id for a token.
        sasl.oauthbearer.client.credentials.client.secret | | Client secret for a token.
        sasl.oauthbearer.jwt.retriever.class | \
            org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever | \
            The class that gets tokens.
        sasl.oauthbearer.jwt.validator.class | \
            org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator | \
            The class that checks tokens.
        sasl.oauthbearer.scope | | Scope of a token.
        sasl.oauthbearer.token.endpoint.url | | Where tokens come from.
        """,
    ),
    **_group(
        "Metrics and quotas",
        "metrics are served over HTTP (--http-port), and there are no quotas of replication",
        """
        alter.log.dirs.replication.quota.window.num | 11 | Windows of the quota for moves between directories.
        alter.log.dirs.replication.quota.window.size.seconds | 1 | Length of these windows.
        kafka.metrics.polling.interval.secs | 10 | How often older metrics reporters are called.
        kafka.metrics.reporters | | Older metrics reporters.
        metric.reporters | org.apache.kafka.common.metrics.JmxReporter | Metrics reporters.
        metrics.num.samples | 2 | Samples of a metric.
        metrics.recording.level | INFO | Which metrics are recorded.
        metrics.sample.window.ms | 30000 | Length of a sample.
        replication.quota.window.num | 11 | Windows of replication quotas.
        replication.quota.window.size.seconds | 1 | Length of these windows.
        """,
    ),
    **_group(
        "Unfinished versions",
        "the broker serves stable versions only",
        """
        unstable.api.versions.enable | false | Whether unfinished API versions are served.
        unstable.feature.versions.enable | false | Whether unfinished features can be enabled.
        """,
    ),
}

#: Keys of older versions of Kafka, without effect in Kafka 4, and what replaces them.
REMOVED: Final[dict[str, str]] = {
    "advertised.host.name": "set advertised.listeners instead",
    "advertised.port": "set advertised.listeners instead",
    "delegation.token.master.key": "delegation tokens are not served",
    "host.name": "set listeners instead",
    "inter.broker.protocol.version": "brokers of all versions speak the same protocol to each other",
    "log.message.format.version": "only the current format is stored",
    "log.message.timestamp.difference.max.ms": "set log.message.timestamp.before.max.ms and .after.max.ms instead",
    "port": "set listeners instead",
    "zookeeper.connect": "there is no ZooKeeper; brokers coordinate through etcd (cluster.url)",
}

#: Prefixes of keys whose rest is a name: of a listener, a plugin or ZooKeeper's client.
PREFIXES: Final[dict[str, str]] = {
    "listener.name.": "only keys of TLS, SASL and limits of connections can be set for a single listener",
    "rlmm.config.": "tiered storage is not served",
    "rsm.config.": "tiered storage is not served",
    "zookeeper.": "there is no ZooKeeper; brokers coordinate through etcd (cluster.url)",
}


class DynamicKey(NamedTuple):
    """A key without effect that clients may set while the broker runs, as in Apache Kafka.

    Attributes:
        key: its name, type and default; checks its values.
        per_broker: whether it is set for one broker, and not for all brokers at once.
    """

    key: Key[Any]
    per_broker: bool


def _dynamic(of_type: ConfigType, names: str, *, per_broker: bool) -> dict[str, DynamicKey]:
    """Keys of one type, a name per line."""
    found = {}
    for unserved in (UNSERVED[name] for name in names.split()):
        parse = plain(of_type)
        default = parse(unserved.default) if unserved.default else None
        doc = f"{unserved.doc} No effect: {unserved.why}."
        found[unserved.name] = DynamicKey(Key(unserved.name, of_type, default, parse, doc), per_broker)
    return found


#: The keys without effect that are dynamic in Apache Kafka.
DYNAMIC_UNSERVED: Final[dict[str, DynamicKey]] = {
    **_dynamic(
        ConfigType.BOOLEAN,
        """
        errors.deadletterqueue.auto.create.topics.enable
        follower.fetch.last.tiered.offset.enable
        group.consumer.assignor.offload.enable
        group.share.assignor.offload.enable
        group.streams.assignor.offload.enable
        log.preallocate
        transaction.partition.verification.enable
        """,
        per_broker=False,
    ),
    **_dynamic(
        ConfigType.DOUBLE,
        """
        log.cleaner.io.buffer.load.factor
        """,
        per_broker=False,
    ),
    **_dynamic(
        ConfigType.INT,
        """
        background.threads
        compression.gzip.level
        compression.lz4.level
        compression.zstd.level
        group.coordinator.cached.buffer.max.bytes
        group.share.assignment.interval.ms
        group.streams.assignment.interval.ms
        log.cleaner.io.buffer.size
        log.cleaner.threads
        max.decompressed.message.bytes
        num.io.threads
        num.network.threads
        num.recovery.threads.per.data.dir
        num.replica.fetchers
        remote.fetch.max.wait.ms
        remote.log.manager.copier.thread.pool.size
        remote.log.manager.expiration.thread.pool.size
        remote.log.manager.follower.thread.pool.size
        remote.log.reader.threads
        share.coordinator.cached.buffer.max.bytes
        """,
        per_broker=False,
    ),
    **_dynamic(
        ConfigType.LIST,
        """
        metric.reporters
        """,
        per_broker=False,
    ),
    **_dynamic(
        ConfigType.LONG,
        """
        log.cleaner.dedupe.buffer.size
        log.local.retention.bytes
        log.local.retention.ms
        log.remote.copy.lag.bytes
        log.remote.copy.lag.ms
        log.roll.jitter.ms
        remote.list.offsets.request.timeout.ms
        remote.log.index.file.cache.total.size.bytes
        remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.fetch.max.bytes.per.second
        """,
        per_broker=False,
    ),
    **_dynamic(
        ConfigType.DOUBLE,
        """
        sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor
        sasl.login.refresh.window.factor
        sasl.login.refresh.window.jitter
        """,
        per_broker=True,
    ),
    **_dynamic(
        ConfigType.LIST,
        """
        sasl.kerberos.principal.to.local.rules
        """,
        per_broker=True,
    ),
    **_dynamic(
        ConfigType.LONG,
        """
        sasl.kerberos.min.time.before.relogin
        """,
        per_broker=True,
    ),
    **_dynamic(
        ConfigType.SHORT,
        """
        sasl.login.refresh.buffer.seconds
        sasl.login.refresh.min.period.seconds
        """,
        per_broker=True,
    ),
    **_dynamic(
        ConfigType.STRING,
        """
        sasl.kerberos.kinit.cmd
        sasl.kerberos.service.name
        ssl.keymanager.algorithm
        ssl.provider
        ssl.secure.random.implementation
        ssl.trustmanager.algorithm
        """,
        per_broker=True,
    ),
}


def without_effect(name: str) -> str | None:
    """Why a key that Barnabas does not have has no effect; None if Kafka does not know it either."""
    if name in UNSERVED:
        return UNSERVED[name].why
    if name in REMOVED:
        return f"removed from Apache Kafka: {REMOVED[name]}"
    return next((why for prefix, why in PREFIXES.items() if name.startswith(prefix)), None)
