"""The simulations of groups, by the protocol of their members: what runs a seed, planted bugs, numbers of seeds."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from tests.sim import bugs, consumer_bugs, mixed_bugs, share_bugs
from tests.sim.consumer_groups import run_consumer_group_seed
from tests.sim.mixed import run_mixed_seed
from tests.sim.scenario import run_seed
from tests.sim.shares import run_share_seed
from tests.witnesses import Plant


class Simulation(NamedTuple):
    """A simulation.

    Attributes:
        run: runs a seed.
        bugs: the planted bugs by name.
        seeds: how many seeds `make test` runs.
        all_seeds: how many `make test-all` runs; `make sim` runs thousands.
        step: seeds of one test.
        searched: seeds that are searched for a planted bug whose witness no longer shows it.
        witnesses: the seeds that show the planted bugs, except those of seed 0.
    """

    run: Callable[[int], object]
    bugs: Mapping[str, Plant]
    seeds: int
    all_seeds: int
    step: int
    searched: int
    witnesses: Mapping[str, int]

    def run_seeds(self, first: int, count: int) -> None:
        """Run seeds until one fails."""
        for seed in range(first, first + count):
            self.run(seed)

    def with_bug(self, bug: str) -> Callable[[int], object]:
        """What runs a seed that may show this bug."""
        return partial(run_seed, transactional=True) if bug in bugs.OF_TRANSACTIONS else self.run


SIMULATIONS: Final[Mapping[str, Simulation]] = {
    "classic": Simulation(
        run=run_seed,
        bugs=bugs.BUGS,
        seeds=25,
        all_seeds=150,
        step=25,
        searched=2000,
        witnesses={
            "a-failed-fsync-is-taken-for-a-good-one": 4,
            "a-marker-during-a-replay-is-ignored": 82,
            "a-marker-ends-the-transactions-of-all-producers": 1,
            "a-marker-from-before-a-load-ends-the-next-transaction": 4244,
            "an-empty-group-is-not-recorded-again": 1515,
            "appends-are-reported-before-they-are-synced": 1,
            "commits-are-answered-before-they-are-durable": 1,
            "commits-of-any-generation-are-accepted": 1348,
            "commits-under-way-are-not-waited-for": 900714,
            "deferred-requests-are-forgotten-when-the-coordinator-moves": 1,
            "former-leaders-go-on": 6,
            "generation-is-not-bumped": 1,
            "leaders-that-return-watch-no-topics": 74,
            "members-are-not-checked-in-transactions": 7,
            "replaced-static-members-are-not-fenced": 5,
            "returning-leaders-load-nothing": 29,
            "silent-members-are-kept": 2,
            "stable-offsets-are-not-waited-for": 7,
            "sync-is-answered-before-it-is-persisted": 1,
        },
    ),
    "consumer": Simulation(
        run=run_consumer_group_seed,
        bugs=consumer_bugs.BUGS,
        seeds=25,
        all_seeds=75,
        step=25,
        searched=500,
        witnesses={
            "a-member-that-leaves-bumps-no-epoch": 1,
            "a-topic-that-grows-bumps-no-epoch": 19,
            "failed-appends-are-not-repeated": 2,
            "full-heartbeats-get-no-assignment": 1,
            "heartbeats-are-answered-before-they-are-in-the-log": 27,
            "partitions-are-given-away-before-they-are-revoked": 1,
            "removed-members-keep-their-partitions": 1,
            "replayed-members-do-not-expire": 1,
            "sessions-do-not-expire": 1,
            "what-is-being-revoked-is-free-after-a-failover": 8,
        },
    ),
    "mixed": Simulation(
        run=run_mixed_seed,
        bugs=mixed_bugs.BUGS,
        seeds=25,
        all_seeds=75,
        step=25,
        searched=500,
        witnesses={
            "a-downgrade-does-not-rebalance": 41,
            "a-member-that-leaves-bumps-no-epoch": 4,
            "an-upgrade-answers-no-deferred-requests": 20,
            "assignments-that-never-arrived-are-not-sent-again": 1220816,
            "an-upgrade-forgets-what-members-own": 1,
            "an-upgrade-leaves-what-a-downgrade-could-not-delete": 900592,
            "heartbeats-do-not-ask-to-rejoin": 7,
            "partitions-are-given-away-before-they-are-revoked": 4,
            "removed-members-keep-their-partitions": 8,
            "sessions-of-classic-members-do-not-expire": 13,
            "what-a-restarted-member-had-to-revoke-has-no-owner": 912262,
        },
    ),
    "share": Simulation(
        run=run_share_seed,
        bugs=share_bugs.BUGS,
        seeds=10,
        all_seeds=40,
        step=10,
        searched=200,
        witnesses={
            "a-replay-forgets-a-group-before-its-epoch": 30,
            "counts-grow-with-failed-writes": 2,
            "former-leaders-may-write": 1,
            "gaps-stay-available": 2,
            "members-that-are-gone-get-back-what-could-not-be-written": 89,
            "members-that-are-gone-keep-their-records": 13,
            "new-leaders-read-no-delivery-counts": 2,
            "the-window-passes-what-is-being-released": 1,
        },
    ),
}
