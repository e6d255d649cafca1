"""`barnabas cluster export` and `barnabas cluster restore`: the metadata that brokers keep, when etcd has lost it."""

import asyncio
import uuid
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from barnabas_broker.cli.output import Output
from barnabas_broker.cluster import ClusterError
from barnabas_broker.cluster.etcd_restore import Restore, Restorer
from barnabas_broker.cluster.image_file import NAME, ImageFileError, SavedImage, read_image, write_image
from barnabas_broker.cluster.kv import KvError, KvUnavailable
from barnabas_broker.cluster.member import open_cluster
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError
from barnabas_broker.errors import BrokerError
from barnabas_protocol.counts import counted


def newest(paths: Sequence[Path]) -> tuple[Path, SavedImage]:
    """The newest of several images of one cluster.

    Raises:
        ImageFileError: one cannot be read, or they are of several clusters or histories.
    """
    found = [(path, read_image(path)) for path in paths]
    path, last = max(found, key=lambda each: (len(each[1].history), each[1].sequence))
    for other, saved in found:
        if saved.image.cluster_id != last.image.cluster_id:
            raise ImageFileError(
                f"{other} is of cluster {saved.image.cluster_id}, and {path} of cluster {last.image.cluster_id}"
            )
        if saved.history != last.history[: len(saved.history)] or (
            len(saved.history) < len(last.history) and saved.sequence > last.history[len(saved.history)].sequence
        ):
            raise ImageFileError(
                f"{other} has changes that {path} does not have, because the metadata was restored in between. "
                "To do: give only one of them"
            )
    return path, last


def _data(saved: SavedImage) -> dict[str, Any]:
    image = saved.image
    return {
        "cluster_id": image.cluster_id,
        "batch": saved.sequence,
        "restores": len(saved.history),
        "brokers": sorted(image.brokers),
        "topics": len(image.topics),
        "partitions": sum(len(topic.partitions) for topic in image.topics.values()),
    }


def _line(saved: SavedImage) -> str:
    data = _data(saved)
    return (
        f"cluster {data['cluster_id']} up to batch {data['batch']}: {counted(len(data['brokers']), 'broker')}, "
        f"{counted(data['topics'], 'topic')}, {counted(data['partitions'], 'partition')}"
    )


def export(arguments: Namespace, output: Output) -> int:
    """Write the newest image that brokers have kept; returns the exit status."""
    target = Path(arguments.file)
    try:
        source, saved = newest([Path(each) for each in arguments.data_dir])
        if target.exists():
            raise ImageFileError(f"{target} exists. To do: give another file")
        write_image(target, saved)
    except (ImageFileError, OSError) as error:
        output.error(str(error))
        return 1
    if output.json:
        output.data({"file": str(target), "source": str(source), **_data(saved)})
    else:
        output.line(f"{target}: {_line(saved)}, from {source}")
    return 0


async def _restore(arguments: Namespace, saved: SavedImage) -> tuple[Restore, int | None]:
    config = Config(BROKER_KEYS, {**dict(arguments.settings), "cluster.url": arguments.cluster})
    connection = open_cluster(config)
    try:
        restorer = Restorer(connection.kv, connection.prefix, lambda: str(uuid.uuid4()))
        plan = await restorer.plan(saved)
        return plan, await restorer.execute(plan) if arguments.execute else None
    finally:
        await connection.close()


def restore(arguments: Namespace, output: Output) -> int:
    """Store the newest of the given images in etcd, or say what would be stored; returns the exit status."""
    try:
        source, saved = newest([Path(each) for each in arguments.files])
        plan, stored = asyncio.run(_restore(arguments, saved))
    except KvUnavailable as error:
        hint = "run the command again, which shows whether it was done" if arguments.execute else "check --cluster"
        output.error(f"{error}. To do: {hint}")
        return 1
    except (ClusterError, KvError, BrokerError, ConfigError) as error:
        output.error(str(error))
        return 1
    if output.json:
        output.data({"source": str(source), **_data(saved), "found_batch": plan.found, "stored_batch": stored})
        return 0
    output.line(f"{source}: {_line(saved)}")
    found = "nothing of a cluster" if plan.found is None else f"the metadata up to batch {plan.found}"
    output.line(f"etcd has {found}")
    if stored is None:
        output.line("Nothing was changed: this was a dry run. Add --execute to store the image.")
    else:
        output.line(f"The image is stored as batch {stored}. Start the brokers now.")
    return 0


def _setting(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise ValueError(f"{text!r} is not KEY=VALUE")
    return name, value


def _export_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="the file to write")
    parser.add_argument(
        "--data-dir",
        action="append",
        required=True,
        metavar="DIR",
        help=f"a broker's data directory, whose {NAME} is read; of several the newest is written. The broker may run",
    )


def _restore_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="an exported image, or a broker's data directory; the newest is used"
    )
    parser.add_argument("--cluster", required=True, metavar="URL", help="etcd://HOST:PORT,HOST:PORT/PREFIX")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a broker's configuration for etcd, such as etcd.ssl.cafile",
    )
    parser.add_argument("--execute", action="store_true", help="store the image; without it, this is a dry run")


EXPORT: Final[dict[str, Any]] = {
    "path": ("cluster", "export"),
    "help": "write the metadata that brokers have kept to a file",
    "add_arguments": _export_arguments,
    "run": export,
    "offline": True,
}
RESTORE: Final[dict[str, Any]] = {
    "path": ("cluster", "restore"),
    "help": "store exported metadata in an etcd that has lost it",
    "add_arguments": _restore_arguments,
    "run": restore,
    "offline": True,
}
