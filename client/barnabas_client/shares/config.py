"""The settings of a share consumer, and their defaults; see :mod:`barnabas_client.config`."""

from collections.abc import Callable
from typing import Any, Final, get_args

from barnabas_client.config import (
    ShareAcknowledgementMode,
    ShareAcquireMode,
    check_callable_or_none,
    check_flag,
    check_integer,
    check_name,
    check_one_of,
)
from barnabas_client.keywords import Settings

_INTEGERS: Final = (
    ("max_poll_records", 1),
    ("fetch_min_bytes", 0),
    ("fetch_max_bytes", 1),
    ("fetch_max_wait_ms", 0),
    ("close_timeout_ms", 0),
)


class ShareConsumerConfig(Settings):
    """The settings of a :class:`~barnabas_client.shares.consumer.ShareConsumer`, which describes them."""

    group_id: str
    share_acknowledgement_mode: ShareAcknowledgementMode = "implicit"
    share_acquire_mode: ShareAcquireMode = "batch_optimized"
    max_poll_records: int = 500
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    fetch_max_wait_ms: int = 500
    check_crcs: bool = True
    client_rack: str = ""
    key_deserializer: Callable[..., Any] | None = None
    value_deserializer: Callable[..., Any] | None = None
    close_timeout_ms: int = 10_000

    def check(self) -> None:
        for name, least in _INTEGERS:
            check_integer(name, getattr(self, name), least)
        check_flag("check_crcs", self.check_crcs)
        check_name("group_id", self.group_id, "give the name of the share group")
        check_one_of("share_acknowledgement_mode", self.share_acknowledgement_mode, get_args(ShareAcknowledgementMode))
        check_one_of("share_acquire_mode", self.share_acquire_mode, get_args(ShareAcquireMode))
        check_callable_or_none("key_deserializer", self.key_deserializer)
        check_callable_or_none("value_deserializer", self.value_deserializer)
