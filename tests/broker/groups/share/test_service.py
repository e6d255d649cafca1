"""The coordinator of share groups: its timers."""

import asyncio
from typing import Any

from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.share.service import ShareGroups
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.groups.consumer.machine import catalog
from tests.broker.groups.memory import MemoryLog
from tests.sim import virtual

SESSION = 45.0


def test_a_group_that_has_moved_away_has_no_timer() -> None:
    """Its sessions end on its new coordinator; here their timer fired without end."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        persister: Any = None  # no topic exists: no state is created
        config = Config(BROKER_KEYS, {"offsets.topic.num.partitions": "1"})
        groups = ShareGroups(
            config,
            MemoryLog(),
            catalog(),
            persister,
            lambda group_id: False,
            lambda group_id, event: None,
            now=loop.time,
            wall_ms=lambda: 0,
        )
        await groups.runtime.load(0, 0)
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id="a", member_epoch=0, subscribed_topic_names=["missing"]
        )
        assert (await groups.heartbeat(request, Caller("c", "/h"))).error_code == ErrorCode.NONE
        assert len(groups.runtime.timers) == 1
        groups.runtime.unload(0)
        await asyncio.sleep(2 * SESSION)
        assert len(groups.runtime.timers) == 0
        await groups.close()

    virtual.run(main())
