"""The containers of `docker-compose.yml`: no acknowledged record is lost, whatever happens to one of them."""

import pytest

from tests.compose.load import Load, committed, read_all
from tests.compose.stack import BROKERS, Stack

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]


def test_no_acknowledged_record_is_lost(stack: Stack) -> None:
    """One broker is killed and started again, another one is paused, all are stopped and removed; volumes remain."""
    with Load(stack.bootstrap_servers) as load:
        load.wait_for_all_partitions("before any fault")

        stack.compose("kill", "broker1")
        load.wait_for_all_partitions("after broker1 was killed")
        stack.up("--no-recreate")
        load.wait_for_replicas("after broker1 was started again")

        stack.compose("pause", "broker2")
        load.wait_for_all_partitions("after broker2 was paused")
        stack.compose("unpause", "broker2")
        load.wait_for_replicas("after broker2 continued")

        load.wait_for_all_partitions("after all faults")
        load.stop()
    stored = read_all(stack.bootstrap_servers)
    _compare(load, stored)

    positions = committed(stack.bootstrap_servers)
    assert positions == [len(each) for each in stored]

    stack.compose("stop")
    ends = {broker: stack.inspect(broker)["State"]["ExitCode"] for broker in BROKERS}
    assert ends == dict.fromkeys(BROKERS, 0), "SIGTERM must end a broker cleanly"
    stack.down()
    stack.up()
    assert committed(stack.bootstrap_servers) == positions
    assert read_all(stack.bootstrap_servers) == stored


def _compare(load: Load, stored: list[dict[int, int]]) -> None:
    """Check that each acknowledged record is stored at its offset, and none is stored twice."""
    lost = load.lost(stored)
    values = [value for there in stored for value in there.values()]
    twice = len(values) - len(set(values))
    print(f"{load.acknowledged:,} records acknowledged, {lost} lost, {twice} stored twice")
    assert load.failures == []
    assert (load.acknowledged, lost, twice) == (load.sent, 0, 0)
