"""Samples the offsets of groups and examines them, again and again. The clock of :mod:`.samples`, :mod:`.doctor`."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from barnabas_broker.cluster.image import Image
from barnabas_broker.groups.coordinator.hosting import HostedGroup
from barnabas_broker.http.doctor import examine
from barnabas_broker.http.rates import Offsets
from barnabas_broker.http.samples import INTERVAL
from barnabas_broker.http.shares import by_place, windows
from barnabas_broker.http.text import TURN
from barnabas_broker.http.view import View

#: The most of a core that sampling may take: with very many partitions, samples become rarer.
_SHARE: Final = 0.005


class Sampler:
    """Samples and examines all groups of a broker.

    Args:
        view: the broker's parts; its samples and diagnoses are kept up to date.
    """

    def __init__(self, view: View) -> None:
        self._view = view
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
        """Sample and examine each group once; returns the seconds that this took."""
        took, since = 0.0, time.perf_counter()
        for _ in self._steps():
            if (passed := time.perf_counter() - since) >= TURN:
                took += passed
                await asyncio.sleep(0)
                since = time.perf_counter()
        return took + time.perf_counter() - since

    def _steps(self) -> Iterator[None]:
        view = self._view
        image = view.cluster.image
        groups: set[str] = set()
        sampled: set[str] = set()
        for hosted in view.known_groups():
            if hosted is not None:
                name = hosted.group.group_id
                groups.add(name)
                if hosted.offsets:
                    sampled.add(name)
                    view.samples.add(name, offsets(view, image, hosted), view.wall_ms() / 1000)
                    yield
                yield from examine(view, image, hosted)
            yield
        machines = by_place(view)
        for group in view.groups.share_groups.all():
            found = []
            for window in windows(view, group, machines):
                found.append(Offsets(window.topic, window.partition, window.start, window.end, window.complete))
                yield
            sampled.add(group.group_id)
            view.samples.add(group.group_id, found, view.wall_ms() / 1000)
        view.samples.end_round(sampled)
        yield
        view.diagnoses.end_round(groups)


def offsets(view: View, image: Image, hosted: HostedGroup) -> Iterator[Offsets]:
    """The offsets of a group, for a sample."""
    for each in view.positions(image, hosted):
        yield Offsets(each.topic, each.partition, None if each.committed is None else each.committed.offset, each.end)
