"""Key-value store backed by etcd: the v3 API over gRPC. An adapter of :mod:`.kv`, imported only with ``--cluster``.

Of several endpoints one is used, and the next one after an error or a timeout. How long a call may take follows from
how long the one before took (:class:`CallTimeout`): an etcd that is only slow can be used. HTTP/2 pings detect a frozen
peer; their timeout is set beside the keepalive options, because by default a ping may stay unanswered for a minute.
Pings and calls wait for as long as a session of a broker lasts: a longer session is the remedy for an etcd that is too
slow.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from aetcd import rpc

from barnabas_broker.cluster.kv import (
    Created,
    Delete,
    Holds,
    KeyChange,
    KeyChanges,
    KeyEntry,
    KeyRange,
    KvCompacted,
    KvError,
    KvUnavailable,
    Lease,
    Put,
    TxnOutcome,
)

#: Seconds that a call may take on one endpoint: the shortest limit, and the longest one unless a session is longer.
CALL_SECONDS: Final = (1.0, 5.0)
#: How much longer a call may take than the one before took.
_CALL_FACTOR: Final = 3.0
#: Seconds that a range read may take: it may return megabytes.
READ_SECONDS: Final = 5.0
#: Minimum seconds that setting up a watch may take.
WATCH_SECONDS: Final = 2.0
#: Minimum seconds that the answer to a ping may take.
_PING_SECONDS: Final = 2.0
_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
#: Metadata that makes a watch fail on an etcd member that has lost its leader, instead of staying silent.
_HAS_LEADER: Final = ("hasleader", "true")
#: Codes of requests that changed nothing.
_REFUSED: Final = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


class CallTimeout:
    """How long a call may take: some times as long as the one before took. A timeout doubles it.

    Args:
        session: the session of a broker, in seconds.

    Attributes:
        seconds: for the next call.
    """

    __slots__ = ("_most", "seconds")

    def __init__(self, session: float) -> None:
        self.seconds, most = CALL_SECONDS
        self._most = max(most, session)

    def answered(self, took: float) -> None:
        """A call was answered after so many seconds."""
        self.seconds = min(max(took * _CALL_FACTOR, CALL_SECONDS[0]), self._most)

    def expired(self) -> None:
        """A call was not answered in time."""
        self.seconds = min(self.seconds * 2, self._most)


@dataclass(frozen=True, slots=True)
class EtcdConfig:
    """Where etcd is, and the credentials for it.

    Attributes:
        endpoints: HOST:PORT each.
        cafile: trusted certificates, PEM; "" connects without TLS.
        certfile: this broker's certificate, PEM, for mutual TLS.
        keyfile: its key.
        user: the user to log in as; "" does not log in.
        password: of that user.
        session: the session of a broker, in seconds.
    """

    endpoints: Sequence[str]
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    user: str = ""
    password: str = ""
    session: float = 0.0


class EtcdClient:
    """A :class:`~barnabas_broker.cluster.kv.KeyValueStore` backed by etcd.

    Args:
        config: where etcd is.

    Raises:
        OSError: a certificate cannot be read.
    """

    def __init__(self, config: EtcdConfig) -> None:
        self._config = config
        self._credentials = _credentials(config)
        self._options = _options(config.session)
        self._channels: dict[int, Any] = {}
        self._timeouts = [CallTimeout(config.session) for _ in config.endpoints]
        self._current = 0
        self._token: str | None = None

    def _channel(self) -> tuple[int, Any]:
        index = self._current
        if index not in self._channels:
            endpoint = self._config.endpoints[index]
            if self._credentials is None:
                self._channels[index] = grpc.aio.insecure_channel(endpoint, options=self._options)
            else:
                self._channels[index] = grpc.aio.secure_channel(endpoint, self._credentials, options=self._options)
        return index, self._channels[index]

    def _failed(self, index: int) -> None:
        """Use the next endpoint, unless another call has switched already."""
        if index == self._current:
            self._current = (index + 1) % len(self._config.endpoints)

    async def _metadata(self, index: int, channel: Any) -> tuple[tuple[str, str], ...]:
        if not self._config.user:
            return ()
        if self._token is None:
            request = rpc.AuthenticateRequest(name=self._config.user, password=self._config.password)
            seconds = self._timeouts[index].seconds
            answer = await rpc.AuthStub(channel).Authenticate(request, timeout=seconds)
            self._token = str(answer.token)
        return (("token", self._token),)

    def _error(self, index: int, error: Any) -> KvError:
        code, details = error.code(), error.details() or ""
        if "required revision has been compacted" in details:
            return KvCompacted(details)
        where = self._config.endpoints[index]
        if code in _REFUSED:
            return KvError(f"etcd at {where}: {details}")
        self._failed(index)
        return KvUnavailable(f"etcd at {where}: {details or code.name}")

    async def _call(self, stub: Any, method: str, request: Any, least: float = 0.0) -> Any:
        """Call a method, within `least` seconds or the time of other calls, if that is longer."""
        loop = asyncio.get_running_loop()
        for last in (False, True):
            index, channel = self._channel()
            timeout = self._timeouts[index]
            began = loop.time()
            try:
                metadata = await self._metadata(index, channel)
                began = loop.time()
                seconds = max(least, timeout.seconds)
                answer = await getattr(stub(channel), method)(request, timeout=seconds, metadata=metadata)
                if not least:
                    timeout.answered(loop.time() - began)
                return answer
            except grpc.aio.AioRpcError as error:
                # Another call may have doubled it meanwhile.
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and loop.time() - began >= timeout.seconds:
                    timeout.expired()
                if last or not self._login_expired(error):
                    raise self._error(index, error) from error
        raise AssertionError("unreachable")

    def _login_expired(self, error: Any) -> bool:
        """Whether to log in again: tokens expire, and become invalid when users change."""
        details = error.details() or ""
        if self._token is None or ("auth token" not in details and "auth store" not in details):
            return False
        self._token = None
        return True

    async def range(self, start: str, end: str | None = None, *, revision: int = 0, limit: int = 0) -> KeyRange:
        request = rpc.RangeRequest(key=start.encode(), revision=revision, limit=limit)
        if end is not None:
            request.range_end = end.encode()
        attempts = len(self._config.endpoints)
        while True:
            attempts -= 1
            try:
                answer = await self._call(rpc.KVStub, "Range", request, READ_SECONDS if end else 0.0)
            except KvUnavailable:
                if attempts <= 0:
                    raise
            else:
                return KeyRange([_entry(kv) for kv in answer.kvs], answer.header.revision, answer.more)

    async def txn(
        self, conditions: Sequence[Created | Holds], then: Sequence[Put | Delete], otherwise: Sequence[str] = ()
    ) -> TxnOutcome:
        request = rpc.TxnRequest(
            compare=[_compare(condition) for condition in conditions],
            success=[_operation(operation) for operation in then],
            failure=[rpc.RequestOp(request_range=rpc.RangeRequest(key=key.encode())) for key in otherwise],
        )
        answer = await self._call(rpc.KVStub, "Txn", request)
        found = {}
        if not answer.succeeded:
            for response in answer.responses:
                for kv in response.response_range.kvs:
                    entry = _entry(kv)
                    found[entry.key] = entry
        return TxnOutcome(answer.succeeded, answer.header.revision, found)

    async def grant(self, ttl: int) -> Lease:
        answer = await self._call(rpc.LeaseStub, "LeaseGrant", rpc.LeaseGrantRequest(TTL=ttl))
        return Lease(answer.ID, answer.TTL)

    async def keep_alive(self, lease_id: int, patience: float, seconds: float) -> int:
        index, channel = self._channel()
        doubt = asyncio.get_running_loop().call_later(patience, self._failed, index)
        try:
            async with asyncio.timeout(seconds):
                metadata = await self._metadata(index, channel)
                stream = rpc.LeaseStub(channel).LeaseKeepAlive(
                    iter([rpc.LeaseKeepAliveRequest(ID=lease_id)]), metadata=metadata
                )
                async for answer in stream:
                    return int(answer.TTL)
        except grpc.aio.AioRpcError as error:
            if self._login_expired(error):
                raise KvUnavailable("etcd asks for a new login") from error
            raise self._error(index, error) from error
        except TimeoutError as error:
            raise KvUnavailable(f"etcd at {self._config.endpoints[index]} does not answer") from error
        finally:
            doubt.cancel()
        raise KvUnavailable(f"etcd at {self._config.endpoints[index]} ended the call")

    async def alarms(self) -> frozenset[str]:
        answer = await self._call(rpc.MaintenanceStub, "Alarm", rpc.AlarmRequest(action=rpc.AlarmRequest.GET))
        return frozenset(rpc.AlarmType.Name(each.alarm) for each in answer.alarms)

    async def revoke(self, lease_id: int) -> None:
        try:
            await self._call(rpc.LeaseStub, "LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease_id))
        except KvUnavailable:
            raise
        except KvError as error:
            if "lease not found" not in str(error):
                raise

    async def watch(self, start: str, end: str, after: int) -> AsyncIterator[KeyChanges]:
        create = rpc.WatchCreateRequest(
            key=start.encode(), range_end=end.encode(), start_revision=after + 1, progress_notify=True
        )
        index, channel = self._channel()
        stream = None
        try:
            metadata = (*(await self._metadata(index, channel)), _HAS_LEADER)
            stream = rpc.WatchStub(channel).Watch(metadata=metadata)
            async with asyncio.timeout(max(WATCH_SECONDS, self._timeouts[index].seconds)):
                await stream.write(rpc.WatchRequest(create_request=create))
                answer = await stream.read()
            while answer is not grpc.aio.EOF:
                if answer.compact_revision:
                    raise KvCompacted(f"revisions before {answer.compact_revision} have been compacted")
                if answer.canceled:
                    raise KvUnavailable(f"etcd ended the watch: {answer.cancel_reason}")
                if answer.events:
                    yield KeyChanges(answer.events[-1].kv.mod_revision, [_change(event) for event in answer.events])
                else:
                    # The revision of a member that lags behind, or of an etcd that was restored, says nothing.
                    yield KeyChanges(after if answer.created else answer.header.revision, ())
                answer = await stream.read()
        except grpc.aio.AioRpcError as error:
            self._login_expired(error)
            raise self._error(index, error) from error
        except (TimeoutError, asyncio.InvalidStateError) as error:
            self._failed(index)
            raise KvUnavailable(f"etcd at {self._config.endpoints[index]} does not answer") from error
        finally:
            if stream is not None:
                stream.cancel()

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()


def parse_url(url: str) -> tuple[list[str], str]:
    """Parse ``etcd://HOST:PORT,HOST:PORT/PREFIX``.

    Returns:
        The endpoints, and the prefix with a slash at both ends ("/barnabas/" unless given).

    Raises:
        ValueError: the URL is not valid; the text says why.
    """
    scheme, found, rest = url.partition("://")
    if scheme != "etcd" or not found:
        raise ValueError("must be etcd://HOST:PORT[,HOST:PORT...][/PREFIX]")
    hosts, _, prefix = rest.partition("/")
    endpoints = []
    for endpoint in hosts.split(","):
        host, colon, port = endpoint.strip().rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError(f"{endpoint!r} is not HOST:PORT")
        endpoints.append(f"{host}:{port}")
    return endpoints, f"/{prefix.strip('/') or 'barnabas'}/"


def _options(session: float) -> tuple[tuple[str, int], ...]:
    ping = round(max(_PING_SECONDS, session) * 1000)
    return (
        *_OPTIONS,
        ("grpc.keepalive_timeout_ms", ping),
        ("grpc.http2.ping_timeout_ms", ping),
        # How long an attempt to connect may take: two answers of an etcd that is as slow as may be.
        ("grpc.min_reconnect_backoff_ms", 2 * ping),
    )


def _credentials(config: EtcdConfig) -> Any:
    if not config.cafile:
        return None
    return grpc.ssl_channel_credentials(
        root_certificates=Path(config.cafile).read_bytes(),
        private_key=Path(config.keyfile).read_bytes() if config.keyfile else None,
        certificate_chain=Path(config.certfile).read_bytes() if config.certfile else None,
    )


def _entry(kv: Any) -> KeyEntry:
    return KeyEntry(kv.key.decode(errors="replace"), kv.value, kv.create_revision, kv.mod_revision, kv.lease)


def _change(event: Any) -> KeyChange:
    gone = event.type == rpc.Event.DELETE
    return KeyChange(event.kv.key.decode(errors="replace"), None if gone else event.kv.value, event.kv.create_revision)


def _compare(condition: Created | Holds) -> Any:
    if isinstance(condition, Created):
        return rpc.Compare(
            result=rpc.Compare.EQUAL,
            target=rpc.Compare.CREATE,
            key=condition.key.encode(),
            create_revision=condition.revision,
        )
    return rpc.Compare(
        result=rpc.Compare.EQUAL, target=rpc.Compare.VALUE, key=condition.key.encode(), value=condition.value
    )


def _operation(operation: Put | Delete) -> Any:
    if isinstance(operation, Put):
        put = rpc.PutRequest(key=operation.key.encode(), value=operation.value, lease=operation.lease)
        return rpc.RequestOp(request_put=put)
    delete = rpc.DeleteRangeRequest(key=operation.key.encode())
    if operation.end is not None:
        delete.range_end = operation.end.encode()
    return rpc.RequestOp(request_delete_range=delete)
