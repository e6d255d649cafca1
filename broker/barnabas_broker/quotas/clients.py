"""The quotas of users and clients: which one applies, what was used of it, and how long a client has to wait. Pure.

Of the quotas that match a client, the most specific one counts: user and client id, user and all client ids, user, all
users and client id, all users and all client ids, all users, client id, all client ids. All clients to which the quota
of a user applies share it; so do the connections of one client id.

What was used is kept for each user and client that has a quota, until it no longer counts: for :data:`MOST` users, and
as many clients. Beyond that, the one that was not used for longest is forgotten, and may use its quota again, but never
one that has to wait or is over its quota. If all are, the further clients of a user are measured together, and further
users as well.

Sources: ``kafka.server.ClientQuotaManager``, ``ClientRequestQuotaManager``, ``ControllerMutationQuotaManager``.
"""

import math
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Final, Generic, TypeVar

from barnabas_broker.quotas.bounded_map import Kept
from barnabas_broker.quotas.entities import CLIENT_ID, IP, USER, QuotaEntity, QuotaKey
from barnabas_broker.quotas.rates import Rate, TokenBucket, Window
from barnabas_protocol.errors import ErrorCode, KafkaError

V = TypeVar("V")

#: Users whose use is measured at a time, for each kind of quota, and clients.
MOST: Final = 20_000
#: Characters of a client id that is kept as it is.
_LONGEST: Final = 128
#: The longest wait, in seconds: the protocol has 32 bits for its milliseconds.
_LONGEST_WAIT: Final = (2**31 - 1) / 1000

#: Whom a limit is for: a user and a client id. None if it is for all together, "" for all without one of their own.
_Level = tuple[str | None, str | None]
#: Whose use is measured: of a user with all its clients (None), of a client of a user, or of a client of any user. A
#: client "" stands for the clients of a user for which there is no room, and of no user for all others.
_Who = tuple[str | None, str | None]


def milliseconds(wait: float) -> int:
    """A wait in seconds as ``throttle_time_ms``."""
    return math.floor(min(wait, _LONGEST_WAIT) * 1000 + 0.5)


class _Limits:
    """The limits of one key, by level."""

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[_Level, float] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def set(self, entity: QuotaEntity, limit: float | None) -> None:
        names = dict(entity)
        level = tuple((names[kind] or "") if kind in names else None for kind in (USER, CLIENT_ID))
        if limit is None:
            self._limits.pop((level[0], level[1]), None)
        else:
            self._limits[level[0], level[1]] = limit

    def of(self, user: str, client_id: str) -> tuple[_Who, float] | None:
        """Whose use counts for a client, and the limit; None without one. A client without an id has only a user."""
        get = self._limits.get
        limit: float | None
        if client_id:
            limit = get((user, client_id)) or get((user, ""))
            if limit:
                return (user, _short(client_id)), limit
        if limit := get((user, None)):
            return (user, None), limit
        if client_id and (limit := get(("", client_id)) or get(("", ""))):
            return (user, _short(client_id)), limit
        if limit := get(("", None)):
            return (user, None), limit
        if client_id and (limit := get((None, client_id)) or get((None, ""))):
            return (None, _short(client_id)), limit
        return None


def _short(client_id: str) -> str:
    """A client id, or what stands for a long one: clients may send 32 KB."""
    if len(client_id) <= _LONGEST:
        return client_id
    return client_id[:_LONGEST] + blake2b(client_id.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class _Used(Generic[V]):
    """The measured use of a quota, by user and client.

    Users have room of their own, which invented client ids do not take.
    """

    __slots__ = ("_clients", "_rest", "_users")

    def __init__(self) -> None:
        self._users: Kept[_Who, V] = Kept(MOST)
        self._clients: Kept[_Who, V] = Kept(MOST)
        self._rest: Kept[_Who, V] = Kept(1)

    def __len__(self) -> int:
        return len(self._users) + len(self._clients) + len(self._rest)

    def use(self, who: _Who, user: str, now: float, make: Callable[[], V]) -> tuple[V, Callable[[float], None]]:
        """The measured use, made if there is none, and a function that keeps it until a time."""
        own = self._users if who[1] is None else self._clients
        for kept, key in ((own, who), (self._users, (user, ""))):
            value = kept.use(key, now, make)
            if value is not None:
                return value, partial(kept.hold, key)
        value = self._rest.use((None, ""), now, make)
        assert value is not None
        return value, _hold_nothing

    def forget(self, now: float, idle: Callable[[V], bool]) -> None:
        """Forget what no longer counts."""
        for kept in (self._users, self._clients, self._rest):
            kept.forget(now, idle)


def _hold_nothing(until: float) -> None:
    """Keep nothing: the use of all others together is never forgotten for another one."""


class _Quota(Generic[V]):
    """A quota of something per second, and what each client has used of it.

    Args:
        window: how it is measured.

    Attributes:
        limits: what is set.
        throttled: how often a client had to wait.
        waited: the seconds of these waits together.
    """

    def __init__(self, window: Window) -> None:
        self.limits = _Limits()
        self.throttled = 0
        self.waited = 0.0
        self._window = window
        self._used: _Used[V] = _Used()

    def __len__(self) -> int:
        return len(self._used)

    def count(self, wait: float) -> None:
        """A client waits for `wait` seconds."""
        self.throttled += 1
        self.waited += wait

    def _limit(self, user: str, client_id: str) -> tuple[_Who, float] | None:
        """Whose limit applies, and the limit; None if there is none."""
        found = self.limits.of(user, client_id) if self.limits else None
        return None if found is None or found[1] == math.inf else found


class RateQuota(_Quota[Rate]):
    """A quota of something per second.

    Args:
        window: how the rate is measured.
        longest: the longest wait, in seconds.
    """

    def __init__(self, window: Window, longest: float = _LONGEST_WAIT) -> None:
        super().__init__(window)
        self._longest = longest

    def record(self, user: str, client_id: str, value: float, now: float) -> float:
        """Count what a client uses; the seconds that it has to wait, 0 if it is within its quota."""
        return self._measure(user, client_id, value, now)

    def wait(self, user: str, client_id: str, now: float) -> float:
        """The seconds that a client has to wait for what it has used before."""
        return self._measure(user, client_id, 0.0, now)

    def most(self, user: str, client_id: str) -> float:
        """The amount that a client may use at once without a wait, if it has used nothing before."""
        found = self._limit(user, client_id)
        return math.inf if found is None else found[1] * (self._window.samples - 1) * self._window.seconds

    def tick(self, now: float) -> None:
        """Forget what no longer counts. To be called about once a second."""
        self._used.forget(now, lambda rate: rate.idle(self._window, now))

    def _measure(self, user: str, client_id: str, value: float, now: float) -> float:
        found = self._limit(user, client_id)
        if found is None:
            return 0.0
        who, limit = found
        rate, hold = self._used.use(who, user, now, Rate)
        if value:
            rate.record(self._window, value, now)
        wait = rate.wait(self._window, limit, now)
        if wait > 0:
            # Nothing counts any more when the window is over.
            hold(now + min(wait, self._window.total))
        return min(wait, self._longest)


class MutationQuota:
    """The partitions that one client may create and delete, as long as one of its requests is carried out.

    A strict quota refuses what comes when the bucket is empty; another one only makes the client wait.
    """

    def __init__(self, quotas: "MutationQuotas", user: str, client_id: str, *, strict: bool) -> None:
        self._quotas = quotas
        self._client = user, client_id
        self._strict = strict
        #: How long the client has to wait, and since when.
        self._wait = self._since = 0.0

    def record(self, partitions: int, now: float) -> None:
        """Count partitions that are created or deleted.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED.
        """
        wait = self._quotas.record(*self._client, partitions, now, strict=self._strict)
        if wait > 0:
            self._wait, self._since = wait, now
            if self._strict:
                raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")

    def throttle_ms(self, now: float) -> int:
        """The rest of the wait, in ms."""
        return milliseconds(max(self._wait - (now - self._since), 0.0)) if self._wait else 0


class _Bucket:
    """The tokens of a user or client, and the limit that it had when it used them last."""

    __slots__ = ("limit", "tokens")

    def __init__(self, tokens: TokenBucket) -> None:
        self.tokens = tokens
        self.limit = 0.0


class MutationQuotas(_Quota[_Bucket]):
    """Quotas of partitions that are created and deleted per second (KIP-599)."""

    def record(self, user: str, client_id: str, count: int, now: float, *, strict: bool) -> float:
        """Use tokens; the seconds that the client has to wait, 0 if it is within its quota.

        A strict client uses nothing if it has to wait.
        """
        found = self._limit(user, client_id)
        if found is None:
            return 0.0
        who, limit = found
        used, hold = self._used.use(who, user, now, lambda: _Bucket(TokenBucket(self._window, limit, now)))
        used.limit, bucket = limit, used.tokens
        before = bucket.wait(self._window, limit, now)
        if not strict or before <= 0:
            bucket.use(count)
        after = bucket.wait(self._window, limit, now)
        if after > 0:
            hold(now + after)
        return min(before if strict else after, _LONGEST_WAIT)

    def tick(self, now: float) -> None:
        """Forget buckets that are full. To be called about once a second."""
        self._used.forget(now, lambda used: used.tokens.idle(self._window, used.limit, now))


class ClientQuotas:
    """The quotas of users and clients.

    Args:
        window: how rates are measured.
        mutations: how the partitions are measured that are created and deleted.

    Attributes:
        active: whether any is set; nothing is measured otherwise.
        produces: bytes of Produce requests.
        fetches: bytes of records that consumers get.
        requests: percent of the time of the event loop's thread.
        mutations: partitions that are created and deleted.
    """

    def __init__(self, window: Window, mutations: Window) -> None:
        self.active = False
        self.produces = RateQuota(window)
        self.fetches = RateQuota(window)
        self.requests = RateQuota(window, window.seconds)
        self.mutations = MutationQuotas(mutations)

    @property
    def kinds(self) -> dict[str, RateQuota | MutationQuotas]:
        """The quotas by their keys."""
        return {
            QuotaKey.PRODUCER_BYTE_RATE: self.produces,
            QuotaKey.CONSUMER_BYTE_RATE: self.fetches,
            QuotaKey.REQUEST_PERCENTAGE: self.requests,
            QuotaKey.CONTROLLER_MUTATION_RATE: self.mutations,
        }

    def set(self, entity: QuotaEntity, key: str, limit: float | None) -> None:
        """A quota was set; with None, it was removed. Those of addresses are for connections."""
        kinds = self.kinds
        if key in kinds and not any(kind == IP for kind, _ in entity):
            kinds[key].limits.set(entity, limit)
            self.active = any(kind.limits for kind in kinds.values())

    def fetch(self, user: str, client_id: str, size: int, now: float) -> float:
        """Count the bytes of a Fetch response; the seconds that the client has to wait.

        If there are any, the response is to be empty, and nothing is counted.
        """
        before = self.requests.wait(user, client_id, now)
        wait = self.fetches.record(user, client_id, size, now)
        if not milliseconds(max(before, wait)):
            return 0.0
        self.fetches.record(user, client_id, -size, now)
        (self.fetches if wait > before else self.requests).count(max(before, wait))
        return max(before, wait)

    def tick(self, now: float) -> None:
        """Forget what no longer counts. To be called about once a second."""
        for kind in self.kinds.values():
            kind.tick(now)
