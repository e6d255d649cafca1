"""The clinic on three brokers: the one that coordinates the group leads none of the partitions that its members read.

Their Fetches go to the other two, and what is said is the same.
"""

from collections.abc import Iterator

import pytest

from barnabas_broker.testing import Cluster
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from tests.clinic.diseases import DISEASES, Disease
from tests.clinic.test_diseases import SETTINGS, Clinic
from tests.cluster.harness import need_etcd

pytestmark = [pytest.mark.cluster]

#: The diseases that show in Fetches, and in the logs of partitions.
_OF_FETCHES = (
    "a record at which a program fails, and reads it again and again",
    "a partition is paused, and not resumed",
    "a program that waits before it works on a record (a delay queue, healthy)",
    "the worker of one partition hangs, while the program reads on",
    "a program that commits one of the partitions that it reads",
    "a group that reads and never commits",
    "a rebalance listener that goes back to the beginning",
    "a member commits an offset after the end of the log",
    "records are deleted before a member reads them, and its position falls back to latest",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    need_etcd()
    with Cluster(3, config=SETTINGS) as cluster:
        yield cluster


@pytest.mark.parametrize("disease", [each for each in DISEASES if each.name in _OF_FETCHES], ids=lambda each: each.name)
def test_what_is_said_about_a_disease(cluster: Cluster, fresh: str, disease: Disease) -> None:
    """With one library: the others are compared on one broker."""

    def lead_elsewhere(topic: str) -> None:
        cluster.wait_in_sync(topic)
        coordinator = cluster.leader(OFFSETS_TOPIC)
        others = [each for each in cluster.brokers if each is not coordinator]
        for number, other in enumerate(others):
            if cluster.leader(topic, number) is not other:
                cluster.move_leader(topic, number, other)

    Clinic(cluster.bootstrap_servers, None, fresh, created=lead_elsewhere).treat(disease, ("barnabas", "classic"))
