"""One long scenario for every client, with member processes and a broker that are killed."""

from collections import Counter

import pytest

from tests.interop.clients.base import Client, Partition, Record, Sender
from tests.interop.conftest import clients
from tests.interop.group import group_of_programs
from tests.interop.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PARTITIONS = 6
FIRST, LATER = 10_000, 500
START = 1_700_000_000_000


class Written:
    """The records that were acknowledged, by partition and offset."""

    def __init__(self, topic: str, sender: Sender) -> None:
        self.topic = topic
        self.records: dict[tuple[int, int], Record] = {}
        self.ends: Counter[int] = Counter()
        self._sender = sender
        self._count = 0

    def more(self, count: int) -> None:
        numbers = range(self._count, self._count + count)
        self._count += count
        for number in numbers:
            _, key, value, headers = self._content(number)
            self._sender.send(self.topic, value, key, headers=headers, timestamp=START + number)
        for number, (partition, offset) in zip(numbers, self._sender.flush(), strict=True):
            _, key, value, headers = self._content(number)
            at = Partition(self.topic, partition)
            assert (partition, offset) not in self.records, "one offset was given to two records"
            self.records[partition, offset] = Record(at, offset, START + number, key, value, tuple(headers))
            self.ends[partition] = max(self.ends[partition], offset + 1)

    @staticmethod
    def _content(number: int) -> tuple[int, bytes, bytes, list[tuple[str, bytes]]]:
        text = b"%d" % number
        return number, b"key-%d" % (number % 500), b"value-" + text * 20, [("number", text), ("number", b"again")]


@pytest.mark.parametrize("client", clients("aiokafka", "barnabas", "kafka-python"), indirect=True)
def test_a_group_survives_leaves_and_kills(client: Client, crashing: Server, fresh: str) -> None:
    """A member leaves, a member and the broker are killed: no record is lost or processed twice"""
    admin = client.admin()
    admin.create_topic(fresh, PARTITIONS)
    written = Written(fresh, client.sender(acks="all"))
    written.more(FIRST)
    assert set(written.ends) == set(range(PARTITIONS))

    with group_of_programs(client.NAME, client.bootstrap_servers, fresh, fresh) as group:
        # The first member's session timeout is so long that only its LeaveGroup frees its partitions in time.
        leaving = group.join("leaving", session_timeout_ms=120_000)
        dying, staying = group.join("dying"), group.join("staying")
        group.wait_shared(leaving, dying, staying)
        group.wait_done(written.ends)

        leaving.leave()
        group.wait_shared(dying, staying)
        assert leaving.left
        written.more(LATER)
        group.wait_done(written.ends)

        dying.kill()
        group.wait_shared(staying)
        written.more(LATER)
        group.wait_done(written.ends)

        # Kill the broker between commits, while some acknowledged records have not been consumed yet.
        before = dict(group.committed)
        written.more(LATER)
        group.wait("a commit of the last lot", lambda: group.committed != before)
        crashing.kill()
        crashing.start()

        # Committed offsets survive, and the group continues with a new member that starts from them.
        joining = group.join("joining")
        group.wait_shared(staying, joining)
        written.more(LATER)  # by the producer from before the kill
        group.wait_done(written.ends)
        outsider = client.reader(fresh)
        assert {number: outsider.committed(Partition(fresh, number)) for number in written.ends} == written.ends

        for member in (staying, joining):
            member.leave()
        group.wait("all have left", lambda: staying.left and joining.left)

    assert {at: group.got.get(at) for at in written.records} == written.records, "an acknowledged record was lost"
    again = {at: who for at, who in group.done.items() if len(who) > 1}
    assert again == {}, "read again although it was committed"
