"""`barnabas log strays`: lists, adopts and removes partitions that the metadata do not know. The broker is stopped."""

import asyncio
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas_broker.cli.output import Output
from barnabas_broker.cluster.image import Event, Image, PartitionInfo, PartitionsAdded, TopicCreated
from barnabas_broker.cluster.local import LocalStore
from barnabas_broker.cluster.metadata import new_topic_id
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.config import parse_properties
from barnabas_broker.files import RealFiles
from barnabas_broker.storage import TopicPartition, names
from barnabas_broker.storage.checkpoints import BadCheckpoint, parse_epochs, parse_partition_metadata
from barnabas_broker.storage.disk import remove_tree


class Stray(NamedTuple):
    """A directory that was set aside; `topic_id` is None if it is not known, `size` in bytes."""

    path: Path
    where: TopicPartition
    topic_id: bytes | None
    size: int


class StrayError(Exception):
    """The command cannot be carried out; the text says why and what to do."""


def find(directory: Path) -> list[Stray]:
    """The strays of a log directory, by partition.

    Raises:
        OSError: the directory cannot be read.
    """
    found = []
    for path in directory.iterdir():
        where = names.parse_stray_directory(path.name)
        if where is not None and path.is_dir() and not path.is_symlink():
            size = sum(each.stat().st_size for each in path.iterdir() if each.suffix == names.LOG)
            found.append(Stray(path, where, _topic_id(path), size))
    return sorted(found, key=lambda stray: (stray.where, stray.path))


def _topic_id(path: Path) -> bytes | None:
    try:
        return parse_partition_metadata((path / names.PARTITION_METADATA).read_text(errors="replace"))
    except (FileNotFoundError, BadCheckpoint):
        return None


def remove(stray: Stray) -> None:
    """Remove a stray for good."""
    remove_tree(RealFiles(), stray.path)


async def adopt(directory: Path, topic: str) -> list[Stray]:
    """Make the strays of a topic its partitions again, and create the topic if the metadata do not know it.

    Raises:
        StrayError: there are none, or they do not fit to each other or to the topic.
        StoreError: the metadata cannot be read or written.
        OSError: a directory cannot be renamed.
    """
    strays = [stray for stray in find(directory) if stray.where.topic == topic]
    store = LocalStore(directory)
    if not strays:
        raise StrayError(f"{directory} has no strays of topic {topic}")
    if not store.exists():
        raise StrayError(
            f"{directory} belongs to a broker of a cluster: copy the records with a consumer of another broker"
        )
    try:
        loaded = await store.load()
        known = Image(cluster_id="").apply_all(loaded.events).topics.get(topic)
        ids = {stray.topic_id for stray in strays if stray.topic_id is not None}
        ids |= set() if known is None else {known.topic_id}
        numbers = [stray.where.partition for stray in strays]
        if len(ids) > 1 or len(set(numbers)) < len(numbers):
            raise StrayError(f"strays of several topics have the name {topic}: remove all but one, or delete the topic")
        targets = [directory / names.partition_directory(stray.where) for stray in strays]
        for target in targets:
            if any(each.stat().st_size for each in target.glob(f"*{names.LOG}")):
                raise StrayError(f"{target} exists and has records: delete the topic first")
        files = RealFiles()
        for stray, target in zip(strays, targets, strict=True):
            if target.exists():
                remove_tree(files, target)
            stray.path.rename(target)
        files.sync_directory(directory)
        partition = _partition(directory, targets)
        count = max(numbers) + 1
        events: list[Event] = []
        if known is None:
            topic_id = ids.pop() if ids else new_topic_id()
            events = [TopicCreated(topic, topic_id, (partition,) * count, {})]
        elif count > len(known.partitions):
            events = [PartitionsAdded(topic, (partition,) * (count - len(known.partitions)))]
        if events:
            await store.append(events, loaded.sequence)
    finally:
        await store.close()
    return strays


def _partition(directory: Path, paths: Sequence[Path]) -> PartitionInfo:
    """A partition that this broker leads, with a leader epoch that is not older than those in the logs."""
    node_id = int(parse_properties((directory / names.META_PROPERTIES).read_text())["node.id"])
    epoch = 0
    for path in paths:
        try:
            epochs = parse_epochs((path / names.EPOCH_CHECKPOINT).read_text(errors="replace"))
        except (FileNotFoundError, BadCheckpoint):
            continue
        epoch = max(epoch, *(each for each, _ in epochs), 0)
    return PartitionInfo(node_id, epoch, (node_id,), (node_id,))


def log_strays(arguments: Namespace, output: Output) -> int:
    """Carry out the command; returns the exit status."""
    directory = Path(arguments.directory)
    files = RealFiles()
    if not (directory / names.META_PROPERTIES).exists():
        output.error(f"{directory} is not a log directory. To do: give the broker's log.dir")
        return 1
    changes = arguments.adopt is not None or arguments.remove is not None
    lock = files.lock(directory / names.LOCK) if changes else -1
    if lock is None:
        output.error(f"a broker uses {directory}. To do: stop it first")
        return 1
    try:
        if arguments.adopt is not None:
            found = asyncio.run(adopt(directory, arguments.adopt))
        else:
            found = find(directory)
            if arguments.remove is not None:
                found = [stray for stray in found if stray.path.name == arguments.remove]
                if not found:
                    raise StrayError(f"{directory} has no stray {arguments.remove}")
                remove(found[0])
    except (StrayError, StoreError, OSError) as error:
        output.error(str(error))
        return 1
    finally:
        if lock >= 0:
            files.close(lock)
    done = "adopted" if arguments.adopt is not None else "removed" if arguments.remove is not None else "stray"
    if output.json:
        output.data(
            [
                {
                    "directory": stray.path.name,
                    "topic": stray.where.topic,
                    "partition": stray.where.partition,
                    "topic_id": None if stray.topic_id is None else stray.topic_id.hex(),
                    "bytes": stray.size,
                    "status": done,
                }
                for stray in found
            ]
        )
        return 0
    for stray in found:
        output.line(f"{stray.path.name}: {stray.where}, {stray.size:,} bytes, {done}")
    if not found:
        output.line("no strays")
    return 0


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="a log directory")
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--adopt", metavar="TOPIC", help="make the strays of a topic its partitions again")
    change.add_argument("--remove", metavar="NAME", help="remove a stray for good; NAME is its directory")


COMMAND: Final[dict[str, Any]] = {
    "path": ("log", "strays"),
    "help": "list partitions that the metadata do not know; adopt or remove them",
    "add_arguments": _arguments,
    "run": log_strays,
    "offline": True,
}
