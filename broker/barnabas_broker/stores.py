"""The stores of a broker: its data directory, and the metadata of its cluster, which is in the directory or in etcd."""

import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, NamedTuple

from barnabas_broker.clock import Clock
from barnabas_broker.cluster.image import BrokerRegistered, Endpoints, Image
from barnabas_broker.cluster.local import NAME as METADATA_JOURNAL
from barnabas_broker.cluster.local import LocalStore
from barnabas_broker.cluster.member import ClusterMember, open_cluster
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import Config, ConfigError, parse_properties
from barnabas_broker.config.keys import CLUSTER_URL, LOG_DIR_MODE, LOG_DIRS
from barnabas_broker.errors import BrokerError
from barnabas_broker.files import Files, RealFiles, read_all
from barnabas_broker.storage import LogDirectory
from barnabas_broker.storage.names import META_PROPERTIES
from barnabas_protocol.uuids import uuid_text

#: Of folders that only their owner may enter; files get it without x.
_PRIVATE: Final = 0o700


class Stores(NamedTuple):
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


async def open_stores(
    stack: AsyncExitStack, config: Config, node_id: int, endpoints: Endpoints, clock: Clock
) -> Stores:
    """Open the data directory, recover its logs and load the metadata.

    Args:
        stack: closes what is opened.
        config: its keys; with ``cluster.url`` the broker is one of a cluster.
        node_id: the broker's id.
        endpoints: where its listeners are reached.
        clock: the time of the logs.

    Raises:
        BrokerError: a ConfigError if the directory is another broker's.
        LogDirectoryError: the directory cannot be used.
        ClusterError: the metadata cannot be loaded.
    """
    open_them = _open_shared if config[CLUSTER_URL] else _open_alone
    return await open_them(stack, config, node_id, endpoints, clock)


async def _open_alone(
    stack: AsyncExitStack, config: Config, node_id: int, endpoints: Endpoints, clock: Clock
) -> Stores:
    """Open the data directory of a single broker, which keeps the metadata in it."""
    path, files = Path(config[LOG_DIRS]), RealFiles(int(config[LOG_DIR_MODE], 8))
    began = time.monotonic()
    directory = LogDirectory.open(path, config, node_id=node_id, now_ms=clock.wall_ms(), files=files, now=clock.now)
    recovery = time.monotonic() - began
    stack.callback(lambda: directory.close(clock.wall_ms()))
    store = LocalStore(path, files)
    stack.push_async_callback(store.close)
    if directory.logs and not store.exists():
        raise ConfigError(f"{path} belongs to a broker of cluster {directory.cluster_id}: start it with --cluster")
    loaded = await store.load()
    image = Image(cluster_id=directory.cluster_id, controller_id=node_id).apply_all(loaded.events)
    cluster = ClusterMetadata(image.apply(BrokerRegistered(node_id, endpoints)), store, loaded.sequence)
    return Stores(directory, cluster, None, recovery)


async def _open_shared(
    stack: AsyncExitStack, config: Config, node_id: int, endpoints: Endpoints, clock: Clock
) -> Stores:
    """Open the data directory of a broker of a cluster, whose metadata is in etcd."""
    path, files = Path(config[LOG_DIRS]), RealFiles(int(config[LOG_DIR_MODE], 8))
    if files.exists(path / METADATA_JOURNAL):
        raise ConfigError(f"{path} belongs to a single broker: start it without --cluster, or give another --data-dir")
    async with AsyncExitStack() as reached:
        connection = open_cluster(config)
        reached.push_async_callback(connection.close)
        cluster_id = await connection.cluster_id(_cluster_of(files, path), uuid_text(os.urandom(16)))
        began = time.monotonic()
        directory = LogDirectory.open(
            path,
            config,
            node_id=node_id,
            now_ms=clock.wall_ms(),
            files=files,
            now=clock.now,
            cluster_id=cluster_id,
        )
        recovery = time.monotonic() - began
        stack.callback(lambda: directory.close(clock.wall_ms()))
        # Opened before the directory, whose cluster it names, but closed before it as well.
        await stack.enter_async_context(reached.pop_all())
    # The image has what users log in with: it is for its owner alone, whatever log.dir.mode says.
    private = RealFiles(_PRIVATE)
    member = await connection.load(
        cluster_id, node_id, endpoints, directory.directory_id, path, files=private, intact=directory.intact
    )

    def note_epochs() -> None:
        directory.intact = member.lifecycle.me.intact

    stack.callback(note_epochs)
    stack.push_async_callback(member.close)
    return Stores(directory, member.cluster, member, recovery)


def _cluster_of(files: Files, path: Path) -> str | None:
    """The cluster that a data directory belongs to; None for a new one.

    Raises:
        BrokerError: its properties cannot be read.
    """
    try:
        properties = parse_properties(read_all(files, path / META_PROPERTIES).decode())
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BrokerError(f"{path / META_PROPERTIES} cannot be read: {error}") from error
    return properties.get("cluster.id")
