"""The parts of a consumer: those that are there from the beginning, and those that exist once it is started."""

import asyncio
import math
import re
import time
from enum import Enum

from barnabas_client.config import ClientConfig, ConsumerConfig
from barnabas_client.consumer.commits import Commits
from barnabas_client.consumer.fetcher import Fetcher
from barnabas_client.consumer.metrics import ConsumerMeters
from barnabas_client.consumer.offsets import OffsetStore
from barnabas_client.consumer.rebalance import ConsumerRebalanceListener, Gate, Rebalancer
from barnabas_client.consumer.subscription import Subscription
from barnabas_client.errors import ConsumerStoppedError, IllegalOperationError, IllegalStateError
from barnabas_client.membership.membership import Membership
from barnabas_client.network.network import Network
from barnabas_protocol.errors import KafkaError


class Phase(Enum):
    """The life of a consumer."""

    NEW = "not started"
    RUNNING = "started"
    CLOSING = "stopping; polls are refused, but the listener may still commit"
    CLOSED = "stopped"


class ConsumerParts:
    """Parts, and what is kept beside them."""

    def __init__(self, client: ClientConfig, config: ConsumerConfig) -> None:
        self.client = client
        self.config = config
        self.phase = Phase.NEW
        self.subscription = Subscription()
        self.gate = Gate()
        #: A poll has more to do than to take what is ready.
        self.attention = True
        self.news = asyncio.Event()
        self.meters = ConsumerMeters(time.monotonic())
        self.listener: ConsumerRebalanceListener | None = None
        self.pattern: re.Pattern[str] | None = None
        self._woken = False
        self._failure: KafkaError | None = None
        self._refusal: KafkaError | None = None  # what a broker says about a topic that is read
        self._leaving = False
        self._counts: dict[str, int] = {}  # of the subscribed topics, as last seen
        self._yielded = 0.0
        self._left_at = math.inf  # when the last poll returned
        self._reported = 0  # polls that the membership has heard of
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Task[None] | None = None
        self._network: Network | None = None
        self._membership: Membership | None = None
        self._store: OffsetStore | None = None
        self._commits: Commits | None = None
        self._fetcher: Fetcher | None = None
        self._rebalancer: Rebalancer | None = None

    # Parts that exist once started.

    @property
    def network(self) -> Network:
        """The cluster."""
        self.check_running()
        assert self._network is not None
        return self._network

    @property
    def fetcher(self) -> Fetcher:
        """The buffers."""
        self.check_running()
        assert self._fetcher is not None
        return self._fetcher

    @property
    def store(self) -> OffsetStore:
        """The group's offsets.

        Raises:
            IllegalOperationError: there is no group.
        """
        self._check_group()
        assert self._store is not None
        return self._store

    @property
    def commits(self) -> Commits:
        """The way to commit.

        Raises:
            IllegalOperationError: there is no group.
        """
        self._check_group()
        assert self._commits is not None
        return self._commits

    def _check_group(self) -> None:
        if self.config.group_id is None:
            raise IllegalOperationError(
                "this consumer has no group_id, so there is nothing to commit to or to read commits from. To do: give "
                "it a group_id"
            )
        self.check_running()

    def check_running(self) -> None:
        """Refuse calls before the start and after the stop.

        Raises:
            ConsumerStoppedError: it was stopped.
            IllegalStateError: it was not started.
        """
        if self.phase is Phase.CLOSED:
            raise ConsumerStoppedError("this consumer was stopped. To do: make a new one")
        if self.phase is Phase.NEW:
            raise IllegalStateError(
                "this consumer is not started. To do: await start() first, or use it in `async with`"
            )
