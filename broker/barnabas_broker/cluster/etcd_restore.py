"""Stores a saved image in an etcd that has lost the metadata of a cluster: `barnabas cluster restore`.

Topic ids, configurations, ISRs, directories and the block of producer ids stay as they are. Leader epochs grow by
:data:`EPOCH_STEP`, so that they are above those that leaders have used since the image was saved, which are in the
logs. A broker is not in the image with the epoch of its registration any more, so all register and elect leaders anew.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas_broker.cluster import ClusterError
from barnabas_broker.cluster.etcd_store import HISTORY, parts, read_history, read_number
from barnabas_broker.cluster.image import Image
from barnabas_broker.cluster.image_file import SavedImage
from barnabas_broker.cluster.kv import Created, Delete, Holds, KeyEntry, KeyValueStore, Put, prefix_end
from barnabas_broker.cluster.registration import LiveBrokers
from barnabas_broker.cluster.store import Restored
from barnabas_protocol.counts import counted

#: What leader epochs and partition epochs grow by.
EPOCH_STEP: Final = 1000


class RestoreRefused(ClusterError):
    """The image must not be stored; the text says why and what to do."""


class Restore(NamedTuple):
    """Plan of a restore.

    Attributes:
        saved: the image.
        found: the number of the last batch in etcd; None if etcd has nothing of a cluster.
    """

    saved: SavedImage
    found: int | None


def restored_image(image: Image) -> Image:
    """The image as it is stored, see the module."""
    topics = {
        name: topic._replace(
            partitions=tuple(
                each._replace(
                    leader_epoch=each.leader_epoch + EPOCH_STEP, partition_epoch=each.partition_epoch + EPOCH_STEP
                )
                for each in topic.partitions
            )
        )
        for name, topic in image.topics.items()
    }
    # No key of etcd is created at revision 0.
    brokers = {node: broker._replace(epoch=0) for node, broker in image.brokers.items()}
    return image._replace(topics=topics, brokers=brokers)


class Restorer:
    """Restores an image.

    Args:
        kv: etcd.
        prefix: of all keys, with a slash at both ends.
        new_id: a name for the history that begins, unique among all ever.
    """

    def __init__(self, kv: KeyValueStore, prefix: str, new_id: Callable[[], str]) -> None:
        self._kv = kv
        self._prefix = prefix
        self._new_id = new_id

    async def _read(self, name: str) -> KeyEntry | None:
        found = (await self._kv.range(f"{self._prefix}{name}")).entries
        return found[0] if found else None

    async def plan(self, saved: SavedImage) -> Restore:
        """Check that the image may be stored. Changes nothing.

        Raises:
            RestoreRefused: it may not.
            KvError: etcd does not answer, or rejects a request.
            StoreError: etcd has keys of another program.
        """
        registered = f"{self._prefix}live/"
        live = LiveBrokers(registered)
        live.listed((await self._kv.range(registered, prefix_end(registered))).entries)
        if live.brokers:
            names = ", ".join(sorted(str(each.node_id) for each in live.brokers.values()))
            raise RestoreRefused(
                f"{counted(len(live.brokers), 'broker is', 'brokers are')} registered in etcd: {names}. "
                "To do: stop all brokers, and try again when their leases have expired"
            )
        cluster_id, head = await self._read("cluster-id"), await self._read("head")
        if cluster_id is not None and cluster_id.value != saved.image.cluster_id.encode():
            raise RestoreRefused(
                f"etcd has cluster {cluster_id.value.decode(errors='replace')}, the image is of cluster "
                f"{saved.image.cluster_id}. To do: give another prefix"
            )
        if head is None:
            return Restore(saved, None)
        newest = read_number(head)
        history = await read_history(self._kv, self._prefix)
        if newest >= saved.sequence or len(history) > len(saved.history):
            raise RestoreRefused(
                f"etcd has metadata up to batch {newest}, and the image up to batch {saved.sequence} only. To do: give "
                "the newest image of all brokers, or another prefix if you want the image nevertheless"
            )
        return Restore(saved, newest)

    async def execute(self, plan: Restore) -> int:
        """Store the image; returns the number of its batch.

        Raises:
            RestoreRefused: etcd has changed meanwhile.
            KvError: etcd does not answer, or rejects a request. What is there is not used, or complete.
        """
        saved, prefix = plan.saved, self._prefix
        sequence = saved.sequence + 1
        snapshots, batches = f"{prefix}snapshot/", f"{prefix}log/"
        here = f"{snapshots}{sequence:020}/"
        head, cluster_id = f"{prefix}head", f"{prefix}cluster-id"
        name = saved.image.cluster_id.encode()
        known: Created | Holds = Created(head, 0) if plan.found is None else Holds(head, str(plan.found).encode())
        await self._step([known], [Delete(here, prefix_end(here))])
        for number, part in enumerate(parts(restored_image(saved.image))):
            await self._step([known], [Put(f"{here}{number:06}", part)])
        history = [*saved.history, Restored(self._new_id(), saved.sequence)]
        await self._step(
            [known],
            [
                Put(cluster_id, name),
                Put(head, str(sequence).encode()),
                Put(f"{prefix}snapshot-head", str(sequence).encode()),
                Put(f"{prefix}{HISTORY}", json.dumps([each._asdict() for each in history]).encode()),
                Delete(snapshots, here),
                Delete(prefix_end(here), prefix_end(snapshots)),
                Delete(batches, prefix_end(batches)),
            ],
        )
        return sequence

    async def _step(self, conditions: Sequence[Created | Holds], operations: Sequence[Put | Delete]) -> None:
        if not (await self._kv.txn(conditions, operations)).done:
            raise RestoreRefused("etcd has changed meanwhile: a broker has started. To do: stop it, and try again")
