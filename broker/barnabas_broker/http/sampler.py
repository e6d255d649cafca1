"""Samples the offsets of groups again and again. The clock of :mod:`.samples`."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from barnabas_broker.cluster.image import Image
from barnabas_broker.groups.coordinator.hosting import HostedGroup
from barnabas_broker.http.rates import Offsets
from barnabas_broker.http.samples import INTERVAL, Samples
from barnabas_broker.http.text import TURN
from barnabas_broker.http.view import View

#: The most of a core that sampling may take: with very many partitions, samples become rarer.
_SHARE: Final = 0.005


class Sampler:
    """Samples all groups of a broker.

    Args:
        view: the broker's parts.
        samples: gets the samples.
    """

    def __init__(self, view: View, samples: Samples) -> None:
        self._view = view
        self._samples = samples
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to sample."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Stop to sample."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            took = await self.sample()
            await asyncio.sleep(max(INTERVAL, took / _SHARE))

    async def sample(self) -> float:
        """Sample each group once; returns the seconds that this took."""
        took, since = 0.0, time.perf_counter()
        image = self._view.cluster.image
        sampled: set[str] = set()
        for hosted in self._view.known_groups():
            if hosted is not None and hosted.offsets:
                name = hosted.group.group_id
                sampled.add(name)
                self._samples.add(name, offsets(self._view, image, hosted), self._view.wall_ms() / 1000)
            if (passed := time.perf_counter() - since) >= TURN:
                took += passed
                await asyncio.sleep(0)
                since = time.perf_counter()
        took += time.perf_counter() - since
        await asyncio.sleep(0)
        since = time.perf_counter()
        self._samples.end_round(sampled)
        return took + time.perf_counter() - since


def offsets(view: View, image: Image, hosted: HostedGroup) -> Iterator[Offsets]:
    """The offsets of a group, for a sample."""
    for each in view.positions(image, hosted):
        yield Offsets(each.topic, each.partition, None if each.committed is None else each.committed.offset, each.end)
