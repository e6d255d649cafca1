"""Diseases of groups: how a program gets one, what has to be said about it, and what must not be said."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import dropwhile
from typing import Final

from barnabas import NewTopic, TopicPartition
from barnabas.explain import GroupStory
from barnabas.sync import Admin, Producer
from barnabas_explain.catalog import (
    GroupReconciled,
    MemberExpired,
    MemberLeft,
    MemberNotRejoined,
    MemberNotRevoked,
    RebalanceOver,
)
from tests.clinic.ward import JAVA, Ward
from tests.interop.waiting import ask_until

#: Each library with the protocols that it speaks.
CLIENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "confluent-kafka": ("classic", "consumer"),
    "aiokafka": ("classic",),
    "kafka-python": ("classic",),
    "barnabas": ("classic", "consumer"),
    JAVA: ("classic", "consumer"),
}
#: The grades. A fourth one, wrong, is a test that fails.
RIGHT: Final = "right"
VAGUE: Final = "vague"
SILENT: Final = "silent"

Case = tuple[str, str]

#: A session timeout that expires, in ms.
SHORT_SESSION_MS: Final = 6_000


@dataclass(frozen=True)
class Disease:
    """A disease.

    Attributes:
        name: what it is, in the table.
        strikes: makes a group of the ward ill.
        says: what the first sentence of an explanation says that is right: all of these.
        hints: what it says that is right but vague: all of these.
        remedy: what its remedy says: all of these.
        never: what no explanation of the group may say.
        grades: the grade of clients that are not always right: what is said about them is as good, or better.
        without: clients that cannot have it.
        poll_ms: max.poll.interval.ms of the members.
        alike: whether it is much the same with all libraries: `make test-all` runs it with two, `make interop` with
            all.
        session_ms: their session timeout. It expires in some diseases; in the others it must not, however slow the
            machine is.
    """

    name: str
    strikes: Callable[[Ward], None]
    says: tuple[str, ...]
    hints: tuple[str, ...] = ()
    remedy: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    grades: Mapping[Case, str] = field(default_factory=dict)
    without: tuple[Case, ...] = ()
    alike: bool = False
    poll_ms: int = 60_000
    session_ms: int = 45_000

    def grade(self, case: Case) -> str:
        """The grade that the explanation has to have for a client and a protocol."""
        return self.grades.get(case, RIGHT)


_CLASSIC: Final = tuple((library, "classic") for library in CLIENTS)
_CONSUMER: Final = tuple((library, "consumer") for library, protocols in CLIENTS.items() if "consumer" in protocols)

#: The clients whose producers the programs do not use.
_UNTRIED: Final = tuple(case for case in (*_CLASSIC, *_CONSUMER) if case[0] not in ("aiokafka", "barnabas"))

#: Advice that does not cure a program that is slow or ill and was never restarted.
_RESTARTS: Final = ("was restarted", "group.instance.id", "it was restarted", "was stopped")


def _taken_over(story: GroupStory) -> bool:
    """Whether the partitions of a member that has left have other owners."""
    after = dropwhile(lambda event: not isinstance(event, MemberLeft), story.events)
    return any(isinstance(event, RebalanceOver | GroupReconciled) for event in after)


def _removed(story: GroupStory, times: int) -> bool:
    """Whether members were removed so many times because nothing was heard of them."""
    return sum(isinstance(event, MemberExpired) for event in story.events) >= times


def _two(ward: Ward) -> None:
    ward.admit("sick")
    ward.admit("healthy")
    ward.settle("sick", "healthy")


def _slow_poll(ward: Ward) -> None:
    _two(ward)
    ward.order("sick", "busy 9")


def _slow_polls(ward: Ward) -> None:
    _two(ward)
    for _ in range(3):
        ward.order("sick", "busy 9")


def _killed(ward: Ward) -> None:
    _two(ward)
    ward.kill("sick")


def _crashed(ward: Ward) -> None:
    _two(ward)
    ward.order("sick", "exit")


def _blocked(ward: Ward) -> None:
    _two(ward)
    ward.order("sick", "block 11")


def _paused(ward: Ward) -> None:
    _two(ward)
    ward.send("sick", signal.SIGSTOP)
    ward.wait_for("the sick member was removed", partial(_removed, times=1))
    ward.send("sick", signal.SIGCONT)


def _frozen(ward: Ward) -> None:
    _two(ward)
    ward.send("sick", signal.SIGSTOP)


def _cut(ward: Ward) -> None:
    ward.admit("sick", cuttable=True)
    ward.admit("healthy")
    ward.settle("sick", "healthy")
    ward.cut()


def _cut_and_mended(ward: Ward) -> None:
    _cut(ward)
    ward.wait_for("the sick member was removed", partial(_removed, times=1))
    ward.mend()


def _dropped(ward: Ward) -> None:
    """A firewall forgets connections, and drops what comes on them; a client notices it by a timeout."""
    ward.admit("sick", cuttable=True)
    ward.admit("healthy")
    ward.settle("sick", "healthy")
    ward.drop()


def _starved(ward: Ward) -> None:
    ward.admit("sick", commit_ms=60_000)
    ward.admit("healthy")
    ward.settle("sick", "healthy")
    ward.order("sick", "starve 9")


def _other_assignor(ward: Ward) -> None:
    """The new version of a program has another assignor than the old one, and not the old one, too."""
    ward.admit("healthy", assignor="range")
    ward.settle("healthy")
    ward.admit("sick", assignor="roundrobin")


def _leaks(ward: Ward) -> None:
    """The program makes a new consumer for each task, and does not close the old one."""
    ward.admit("sick")
    # The poll interval of aiokafka is not known: its consumers are seen to be left over when there are three.
    for leaks in range(1, 4):
        # librdkafka stays a member for as long as its program does not take what has been assigned.
        ward.settle_with("sick", 2)
        ward.order("sick", "leak")
        ward.wait_for("the old consumer is gone", partial(_unpolled, times=leaks))


def _unpolled(story: GroupStory, times: int) -> bool:
    """Whether so many members are gone that were not polled, or it is said why."""
    gone = sum(isinstance(event, MemberLeft | MemberNotRejoined | MemberNotRevoked) for event in story.events)
    return gone >= times or any("does not close the old one" in each.text for each in story)


def _short_session(ward: Ward) -> None:
    ward.admit("sick", session_ms=1_000)


def _failing_assignor(ward: Ward) -> None:
    """The leader's own assignor fails when a second member joins: its program ends."""
    ward.admit("sick", assignor="failing")


def _other_topic(ward: Ward) -> None:
    """The new version of a program reads another topic than the old one, which still runs."""
    with Admin(bootstrap_servers=ward.bootstrap) as admin:
        admin.create_topics([NewTopic(f"{ward.topic}-new", num_partitions=2)])
    _two(ward)
    ward.discharge("sick")
    # If it came back before that, it would be one rebalance: a restart.
    ward.wait_for("the healthy member has taken over", _taken_over)
    ward.admit("sick", topics=[f"{ward.topic}-new"])


def _never_revokes(ward: Ward) -> None:
    ward.admit("sick")
    ward.settle("sick")
    ward.order("sick", "slow_revoke 14")
    ward.admit("healthy")


def _downgraded(ward: Ward) -> None:
    """A deployment goes back to the classic protocol while others have gone on."""
    ward.admit("sick")
    ward.settle("sick")
    ward.admit("healthy", protocol="classic")
    ward.settle("sick", "healthy")
    ward.discharge("sick")


def _lags(ward: Ward) -> None:
    """A member gets many records, and is behind for a while."""
    _two(ward)
    ward.produce(5_000)


def _offsets_expired(ward: Ward) -> None:
    ward.admit("sick")
    ward.settle("sick")
    ward.produce(10)
    ask_until(lambda: ward.committed() == 20, "all records are committed")
    ward.discharge("sick")
    ward.commit_for(100)
    ask_until(lambda: ward.committed() == 0, "the offsets have expired")
    ward.admit("sick", reset="latest")


def _restarted(ward: Ward) -> None:
    _two(ward)
    ward.discharge("sick")
    ward.admit("sick")


def _has_committed(ward: Ward, records: int) -> bool:
    return ward.committed() == records


def _scheduled(ward: Ward) -> None:
    """A program that consumes what there is, and stops; it is started again and again."""
    for run in range(1, 5):
        ward.produce(3)
        ward.admit("sick")
        ward.settle("sick")
        ask_until(partial(_has_committed, ward, 6 * run), "all records are committed")
        ward.discharge("sick")


def _resubscribed(ward: Ward) -> None:
    _two(ward)
    ward.order("sick", "resubscribe")


def _same_instance(ward: Ward) -> None:
    ward.admit("sick", instance_id="one")
    ward.settle("sick")
    ward.admit("healthy", instance_id="one")


def _crash_loop(ward: Ward) -> None:
    _two(ward)
    for crashes in range(1, 4):
        ward.order("sick", "exit")
        if crashes < 3:
            ward.wait_for("the sick member was removed", partial(_removed, times=crashes))
            ward.admit("sick")
            ward.settle("sick", "healthy")


def _poison(ward: Ward) -> None:
    """One of the records of a partition ends the program each time, which a supervisor starts again."""
    ward.admit("sick", poison=(0, 5))
    ward.settle("sick")
    for life in range(1, 4):
        ward.produce(10)
        ward.wait_for_end("sick")
        ward.wait_for("the sick member was removed", partial(_removed, times=life))
        if life < 3:
            ward.admit("sick", poison=(0, 5))


def _retries(ward: Ward) -> None:
    """The program fails at a record, and reads it again, for ever."""
    ward.admit("sick", retries=(0, 5))
    ward.settle("sick")
    ward.produce(10)


def _partition_paused(ward: Ward) -> None:
    """The program pauses a partition and does not resume it."""
    ward.admit("sick")
    ward.settle("sick")
    ward.produce(10)
    ask_until(lambda: ward.committed() == 20, "all records are committed")
    ward.order("sick", "pause 0")
    ward.produce_until("the explanation says so", lambda story: any("-0 has stood at" in each.text for each in story))


def _hangs(ward: Ward) -> None:
    """The program waits for ever in the handler of a record, while its heartbeats go on."""
    ward.admit("sick")
    ward.settle("sick")
    ward.produce(10)
    ask_until(lambda: ward.committed() == 20, "all records are committed")
    ward.order("sick", "busy 3600")
    ward.produce(10)


def _never_commits(ward: Ward) -> None:
    ward.admit("sick", commits=False)
    ward.settle("sick")
    ward.produce_until(
        "the explanation says so", lambda story: any("without committing" in each.text for each in story)
    )


def _delays(ward: Ward) -> None:
    """The program waits before it works on a record, and reads it again each time."""
    ward.admit("sick", retries=(0, 5), delay_ms=5_500)
    ward.settle("sick")
    ward.produce(10)


def _one_worker_hangs(ward: Ward) -> None:
    """The worker of one partition waits for ever; the program reads on, and commits the other partition."""
    ward.admit("sick", commits=False)
    ward.settle("sick")
    ward.produce(100)
    ward.order("sick", "commit 0 5")
    ward.produce_until(
        "the explanation says so",
        lambda story: any("its handler, hangs" in each.text for each in story),
        then=lambda written: ward.order("sick", f"commit 1 {100 + written}"),
    )


def _commits_one_partition(ward: Ward) -> None:
    """The program commits one of the partitions that it reads."""
    ward.admit("sick", commits=False)
    ward.settle("sick")
    ward.produce_until(
        "the explanation says so",
        lambda story: any("some of the partitions" in each.text for each in story),
        then=lambda written: ward.order("sick", f"commit 0 {written}"),
    )


def _commits_last_records(ward: Ward) -> None:
    """The program commits the offset of the last record in place of the next one, while records go on."""
    ward.admit("sick", last=True)
    ward.settle("sick")
    written = 0

    def counts(records: int) -> None:
        nonlocal written
        written = records

    def is_said_or_never(story: GroupStory) -> bool:
        return written >= 40 or any("in place of the next one" in each.text for each in story)

    ward.produce_until("the explanation says so", is_said_or_never, then=counts)


def _commits_each_record(ward: Ward) -> None:
    """The program commits after each record, and there are many."""
    ward.admit("sick", poison=(0, 1_000_000))
    ward.settle("sick")
    ward.produce(20_000)


def _jumps_to_the_end(ward: Ward) -> None:
    """The program goes on at the end whenever it is behind."""
    ward.admit("sick")
    ward.settle("sick")
    times = 0

    def falls_behind(written: int) -> None:
        nonlocal times
        times = written
        ward.order("sick", "fall_behind 1 0")
        ward.produce(1)
        ward.produce(100)

    def is_said_or_never(story: GroupStory) -> bool:
        return times >= 10 or any("seeks to the end when it is behind" in each.text for each in story)

    ward.produce_until("the explanation says so", is_said_or_never, then=falls_behind)


def _untaken(ward: Ward) -> None:
    """The rebalance listener of the program does not take its partitions."""
    ward.admit("sick", untaken=True)
    ward.wait_for("the sick member has partitions", lambda story: any("sick" in each.text for each in story))
    ward.produce(10)


def _commits_elsewhere(ward: Ward) -> None:
    """The program commits in transactions to another group than the one in which it reads."""
    ward.admit("sick", transactions=f"{ward.group}-typo")
    ward.settle("sick")
    ward.produce_until("the explanation says so", lambda story: any("-typo" in each.text for each in story))


def _no_topic(ward: Ward) -> None:
    ward.admit("sick", topics=[f"{ward.topic}-missing"])


def _first_records_while_away(ward: Ward) -> None:
    """The first records of a partition come while the program restarts."""
    ward.admit("sick", reset="latest", commit_ms=600_000)
    ward.settle("sick")
    ward.order("sick", "commit 0 0")
    ask_until(lambda: ward.offsets() == {0: 0}, "one partition is committed")
    ward.kill("sick")
    ward.produce(10)
    ward.admit("sick", reset="latest", commit_ms=600_000)


def _assigned(ward: Ward) -> None:
    """A program reads with assign() and has the group id of others: its commits count when the group has no member."""
    ward.admit("healthy")
    ward.settle("healthy")
    ward.admit("sick", assign=[0], commit_ms=200)
    ward.settle("sick")
    ward.produce_until("commits are refused", lambda story: any("were refused" in each.text for each in story))
    ward.discharge("healthy")
    ward.produce_until("commits are accepted", lambda story: any("they were accepted" in each.text for each in story))


def _rewinds(ward: Ward) -> None:
    """The rebalance listener goes back to the beginning whenever the member gets partitions."""
    ward.admit("sick", rewinds=True)
    ward.settle("sick")
    ward.produce(10)
    ask_until(lambda: ward.committed() == 20, "all records are committed")
    for _ in range(2):
        ward.admit("healthy")
        ward.settle("healthy")
        ward.discharge("healthy")
        ward.settle_with("sick", 2)


def _static_pair(ward: Ward) -> None:
    ward.admit("sick", instance_id="one")
    ward.admit("healthy", instance_id="two")
    ward.settle("sick", "healthy")


def _static_restart(ward: Ward) -> None:
    _static_pair(ward)
    ward.discharge("sick")
    ward.admit("sick", instance_id="one")


def _static_away(ward: Ward) -> None:
    _static_pair(ward)
    ward.kill("sick")
    ward.wait_for("the sick member is away for long", partial(_removed, times=1))
    ward.admit("sick", instance_id="one")


def _static_gone(ward: Ward) -> None:
    """The group is made smaller: a static member is stopped for good."""
    _static_pair(ward)
    ward.discharge("sick")


def _lost(ward: Ward) -> None:
    """The program reaches the address at which it asks, and not the one that the answer names."""
    ward.admit("sick", lost=True)
    # There are no events to follow before the first one of the broker.
    ask_until(lambda: "asked for this group's coordinator" in ward.transcript(), "the first event is there", 90)


def _open_transaction(ward: Ward) -> None:
    """A producer does not end its transaction."""
    ward.admit("sick", committed=True)
    ward.settle("sick")
    ward.produce(10)
    ask_until(lambda: ward.committed() == 20, "all records are committed")
    ward.leave_open(f"of-{ward.group}")


def _grown(ward: Ward) -> None:
    _two(ward)
    with Admin(bootstrap_servers=ward.bootstrap) as admin:
        admin.create_partitions({ward.topic: 4})


def _leaves_uncommitted(ward: Ward) -> None:
    """A program commits now and then, and not when it closes its consumer."""
    ward.admit("sick", commits=False)
    ward.settle("sick")
    ward.produce(10)
    for partition in range(2):
        ward.order("sick", f"commit {partition} 3")
    ward.produce_until("the offsets stand still", lambda story: any(" at 3" in each.text for each in story))
    ward.discharge("sick")


def _grown_unnoticed(ward: Ward) -> None:
    """A topic gets more partitions, and the clients look for these every 5 min, as they do by default."""
    for name in ("sick", "healthy"):
        ward.admit(name, metadata_ms=300_000)
    ward.settle("sick", "healthy")
    with Admin(bootstrap_servers=ward.bootstrap) as admin:
        admin.create_partitions({ward.topic: 4})
    with Producer(bootstrap_servers=ward.bootstrap) as producer:
        for partition in (2, 3):
            producer.send(ward.topic, b"record", partition=partition)


def _grown_at_latest(ward: Ward) -> None:
    """Records are in a new partition before the member reads it."""
    ward.admit("sick", reset="latest")
    ward.settle("sick")
    ward.grow_until("the explanation says so", lambda story: any("asked for the end" in each.text for each in story))


def _offsets_reset(ward: Ward) -> None:
    ward.admit("sick")
    ward.settle("sick")
    ward.produce(10)
    ask_until(lambda: ward.committed() == 20, "all records are committed")
    ward.discharge("sick")
    with Admin(bootstrap_servers=ward.bootstrap, client_id="nightly-job") as admin:
        admin.alter_consumer_group_offsets(ward.group, {TopicPartition(ward.topic, 1): 3})
    ward.admit("sick")


def _committed_back(ward: Ward) -> None:
    """A member commits an older offset after a newer one, as an asynchronous commit that is sent again does."""
    ward.admit("sick")
    ward.settle("sick")
    ward.produce(10)
    ask_until(lambda: ward.committed() == 20, "all records are committed")
    ward.order("sick", "commit 1 7")


def _committed_beyond(ward: Ward) -> None:
    ward.admit("sick")
    ward.settle("sick")
    ward.produce(10)
    ask_until(lambda: ward.committed() == 20, "all records are committed")
    ward.order("sick", "commit 1 1000")


def _deleted_records(ward: Ward, reset: str = "latest") -> None:
    """Records are deleted before a member reads them, and it goes on at the end, or nowhere."""
    ward.admit("sick")
    ward.settle("sick")
    ward.produce(10)
    ask_until(lambda: ward.committed() == 20, "all records are committed")
    ward.discharge("sick")
    ward.produce(10)
    with Admin(bootstrap_servers=ward.bootstrap) as admin:
        admin.delete_records({TopicPartition(ward.topic, 1): 15})
    ward.admit("sick", reset=reset)


def _slow_revoke(ward: Ward) -> None:
    """The rebalance listener of a member takes long when another one joins."""
    ward.admit("sick")
    ward.settle("sick")
    ward.order("sick", "slow_revoke 7")
    ward.admit("healthy")


def _regex_matches(ward: Ward) -> None:
    for name in ("sick", "healthy"):
        ward.admit(name, topics=[f"^{ward.topic}.*"])
    ward.settle("sick", "healthy")
    with Admin(bootstrap_servers=ward.bootstrap) as admin:
        admin.create_topics([NewTopic(f"{ward.topic}-later", num_partitions=2)])


def _topic_again(ward: Ward) -> None:
    _two(ward)
    with Admin(bootstrap_servers=ward.bootstrap) as admin:
        admin.delete_topics([ward.topic])
        ward.wait_for(
            "the explanation names the deletion", lambda story: any("was deleted" in one.text for one in story)
        )
        # aiokafka asks for the topic, which creates it.
        admin.create_topics([NewTopic(ward.topic, num_partitions=2)], raise_errors=False)


def _broker_restart(ward: Ward) -> None:
    _two(ward)
    ward.restart_broker()


DISEASES: Final = (
    Disease(
        "a batch takes longer than max.poll.interval.ms",
        _slow_poll,
        says=("sick", "polled too slowly"),
        hints=("sick", "either polled too slowly"),
        remedy=("max.poll.interval.ms", "sick"),
        never=_RESTARTS,
        grades={("confluent-kafka", "consumer"): VAGUE},
        poll_ms=6_000,
        # librdkafka demands a session that is not longer than max.poll.interval.ms.
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "each batch takes longer than max.poll.interval.ms",
        _slow_polls,
        says=("sick", "polled too slowly"),
        hints=("sick", "either polled too slowly, or "),
        remedy=("max.poll.interval.ms", "sick"),
        never=_RESTARTS,
        grades={("confluent-kafka", "consumer"): VAGUE},
        poll_ms=6_000,
        # librdkafka demands a session that is not longer than max.poll.interval.ms.
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "kill -9",
        _killed,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "probably crashed or was killed"),
        remedy=("its process ended",),
        never=("polled too slowly", "was restarted", "group.instance.id"),
    ),
    Disease(
        "an exit without close()",
        _crashed,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "probably crashed or was killed"),
        remedy=("exit without close()",),
        never=("polled too slowly", "was restarted", "group.instance.id"),
    ),
    Disease(
        "event loop or interpreter lock blocked for longer than the session",
        _blocked,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "probably blocked or paused"),
        remedy=("session.timeout.ms",),
        never=("polled too slowly", *_RESTARTS),
        # The threads of librdkafka need no interpreter lock, and Java has none.
        without=tuple((library, protocol) for library in ("confluent-kafka", JAVA) for protocol in CLIENTS[library]),
    ),
    Disease(
        "process paused for longer than the session, and thawed",
        _paused,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "probably blocked or paused"),
        remedy=("session.timeout.ms",),
        never=("probably polled too slowly", *_RESTARTS),
    ),
    Disease(
        "process frozen",
        _frozen,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "probably blocked or paused, or its network was cut"),
        remedy=("Look whether its process runs",),
        never=("probably polled too slowly", *_RESTARTS),
    ),
    Disease(
        "network cut, and no connection is closed",
        _cut,
        alike=True,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "probably blocked or paused, or its network was cut"),
        remedy=("Look whether its process runs",),
        never=("probably polled too slowly", *_RESTARTS),
    ),
    Disease(
        "network cut for longer than the session, and mended",
        _cut_and_mended,
        alike=True,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "blocked or paused, or its network was cut"),
        hints=("sick", "was not heard of for", "its network was cut"),
        # It may take its request.timeout.ms to come back.
        grades={(JAVA, "consumer"): VAGUE},
        remedy=("session.timeout.ms",),
        never=("probably polled too slowly", *_RESTARTS),
    ),
    Disease(
        "a firewall drops open connections without closing them, and lets new ones pass",
        _dropped,
        alike=True,
        session_ms=SHORT_SESSION_MS,
        says=("the network between sick", "was probably cut without closing the connection"),
        hints=("sick", "was not heard of for", "its network was cut"),
        # It may take its request.timeout.ms to come back.
        grades={(JAVA, "consumer"): VAGUE},
        remedy=("firewalls",),
        never=("probably polled too slowly", "killed", *_RESTARTS),
        # It goes on, or comes back, on a connection that it has opened meanwhile.
        without=(("confluent-kafka", "consumer"),),
    ),
    Disease(
        "heartbeats starve while the program fetches and polls",
        _starved,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "heartbeat thread or task probably starve"),
        remedy=("its heartbeat",),
        never=("polled too slowly", "blocked or paused", *_RESTARTS),
        # Their heartbeats have a thread that does not wait for the program.
        without=tuple(
            (library, protocol) for library in ("confluent-kafka", "barnabas", JAVA) for protocol in CLIENTS[library]
        ),
    ),
    Disease(
        "restart",
        _restarted,
        says=("sick", "left", "it was restarted"),
        remedy=("group.instance.id",),
        never=("polled too slowly", "killed", "blocked"),
    ),
    Disease(
        "a scheduled job that is alone in its group (healthy)",
        _scheduled,
        alike=True,
        says=("Runs: sick", "was alone in the group, and started and stopped: 4 runs within"),
        remedy=("needs no change",),
        never=("storm", "again and again", "crashed", "killed", "polled too slowly", "blocked", "group.instance.id"),
        # It asks for a new assignment again and again.
        without=(("kafka-python", "classic"),),
    ),
    Disease(
        "program that unsubscribes and subscribes again",
        _resubscribed,
        says=("sick", "unsubscribed and subscribed again"),
        hints=("sick", "either polled too slowly, or unsubscribed"),
        never=("probably polled too slowly", "killed", "blocked", "it was restarted"),
        # The broker does not know max.poll.interval.ms of aiokafka. A consumer of barnabas stays a member.
        grades={("aiokafka", "classic"): VAGUE},
        without=(("barnabas", "classic"), ("barnabas", "consumer")),
    ),
    Disease(
        "a program that makes a consumer for each task, and does not close the old one",
        _leaks,
        says=("sick", "probably makes a new consumer again and again, and does not close the old one"),
        remedy=("Close the consumer before the next one is made",),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "poison"),
        poll_ms=6_000,
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "two programs with one group.instance.id",
        _same_instance,
        says=("programs probably use the group.instance.id one",),
        remedy=("group.instance.id of its own",),
        never=("polled too slowly", "it was restarted"),
    ),
    Disease(
        "a program that crashes at each start",
        _crash_loop,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "probably crashed again and again"),
        remedy=("Look why the process of sick", "a record at which it fails"),
        never=("polled too slowly", "was restarted", "group.instance.id", "blocked"),
    ),
    Disease(
        "a record at which a program ends each time, while it reads other partitions",
        _poison,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "again and again", "-0 ", "committed offset", " 5", "each time", "probably fails at "),
        remedy=("-p 0 -o 5", "--to-offset 6"),
        never=("polled too slowly", "group.instance.id", "blocked"),
        # It joins again, and then sends no heartbeats: it does not get to the record.
        without=(("kafka-python", "classic"),),
    ),
    Disease(
        "a record at which a program fails, and reads it again and again",
        _retries,
        alike=True,
        says=("sick", "-0 has stood at 5 for", "from offset 5 on", "probably fails at a record there"),
        remedy=("-p 0 -o 5", "--to-offset 6"),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "paused", "went back"),
        poll_ms=6_000,
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "a partition is paused, and not resumed",
        _partition_paused,
        alike=True,
        says=("sick", "-0 has stood at", "does not fetch it", "probably paused it, and not resumed"),
        hints=("sick", "-0 has stood at", "probably paused it, or stands still in records"),
        remedy=("pause, resume",),
        # Whether it polls is not known: its library does not send max.poll.interval.ms.
        grades={("aiokafka", "classic"): VAGUE},
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "poison"),
        poll_ms=6_000,
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "a program that waits before it works on a record (a delay queue, healthy)",
        _delays,
        alike=True,
        says=("sick", "-0 has stood at 5 for", "got the same records", "it waits before it works"),
        remedy=("it needs no change",),
        never=("crashed", "killed", "polled too slowly", "was restarted", "blocked", "paused", "poison", "went back"),
        poll_ms=12_000,
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "the worker of one partition hangs, while the program reads on",
        _one_worker_hangs,
        alike=True,
        says=("sick", "-0 has stood at 5 for", "heartbeats go on", "record at offset 5, or its handler, hangs"),
        remedy=("Give its calls timeouts",),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "paused", "poison"),
        poll_ms=6_000,
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "a program that commits one of the partitions that it reads",
        _commits_one_partition,
        alike=True,
        says=("sick", "has read", "has committed only", "probably commits some of the partitions that it reads"),
        remedy=("Commit all partitions of a batch",),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "stands still", "paused", "poison"),
        poll_ms=6_000,
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "a program that commits the offset of the last record in place of the next one",
        _commits_last_records,
        alike=True,
        says=("sick", "probably commits the offset of the last record", "in place of the next one", "-0 to "),
        remedy=("last record plus one",),
        # It asks for the next record after the commit, so that it may have got none.
        grades={("kafka-python", "classic"): SILENT},
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "stands still", "paused", "poison"),
    ),
    Disease(
        "a program that commits after each record",
        _commits_each_record,
        alike=True,
        says=("sick", "commits nearly each record by itself"),
        remedy=("Commit by time or by number",),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "stands still", "paused", "poison"),
    ),
    Disease(
        "a program that goes on at the end whenever it is behind",
        _jumps_to_the_end,
        alike=True,
        says=("sick", "jumped to the end of a partition", "-0", "probably seeks to the end when it is behind"),
        remedy=("do not seek to the end",),
        # They fetch ahead: they have fetched the records over which they jump.
        grades={(library, each): SILENT for library in ("confluent-kafka", "barnabas") for each in CLIENTS[library]},
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "paused", "auto.offset.reset"),
    ),
    Disease(
        "a rebalance listener that does not take the assignment",
        _untaken,
        says=("sick", "has neither fetched", "has probably not taken its assignment", "its rebalance listener fails"),
        remedy=("its rebalance listener",),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "paused", "poison"),
        # The others have it from the assignment, whatever their listener does.
        without=tuple(case for case in (*_CLASSIC, *_CONSUMER) if case[0] != "confluent-kafka"),
        poll_ms=6_000,
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "a program that commits in transactions to another group",
        _commits_elsewhere,
        says=("sick", "has read", "probably commits to the group", "-typo, which has no member", "in transactions of"),
        remedy=("sendOffsetsToTransaction",),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "stands still", "paused", "poison"),
        without=_UNTRIED,
        poll_ms=6_000,
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "a subscription to a topic that does not exist",
        _no_topic,
        says=("sick", "-missing, which does not exist"),
        remedy=("reate the topic", "subscription"),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "paused", "advertised.listeners"),
        # The others have the topic created.
        without=tuple(case for case in (*_CLASSIC, *_CONSUMER) if case[0] != "confluent-kafka"),
    ),
    Disease(
        "the first records of a partition come while the program restarts, and it goes on at latest",
        _first_records_while_away,
        alike=True,
        says=("sick", "-1 at 10", "does not read 0 to 9", "has read the partition before", "latest probably applied"),
        remedy=("auto.offset.reset=earliest", "--to-offset 0"),
        never=("polled too slowly", "blocked", "seeks to the end", "expired"),
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "a program that stands still, while its heartbeats go on",
        _hangs,
        says=("sick", "have not moved for", "heartbeats go on", "program probably stands still"),
        remedy=("max.poll.interval.ms", "Give its calls timeouts"),
        never=("crashed", "killed", "polled too slowly", "restarted", "was blocked", "poison"),
        # The others leave after max.poll.interval.ms.
        without=tuple(case for case in (*_CLASSIC, *_CONSUMER) if case[0] != "aiokafka"),
        poll_ms=3_600_000,
    ),
    Disease(
        "a group that reads and never commits",
        _never_commits,
        alike=True,
        says=("sick", "has read", "and the group has no committed offset", "reads without committing"),
        remedy=("auto.offset.reset", "enable.auto.commit"),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "stands still", "paused"),
        poll_ms=6_000,
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "a program that reads with assign() and commits in the group of others",
        _assigned,
        alike=True,
        says=("sick", "were refused", "it is not a member of the group", "when it had none, they were accepted", "-0 "),
        remedy=("assign()", "group.id of its own"),
        never=("crashed", "killed", "polled too slowly", "blocked", "The client sick"),
        without=_CONSUMER,
    ),
    Disease(
        "a rebalance listener that goes back to the beginning",
        _rewinds,
        alike=True,
        says=("sick", "went back to the beginning of", "after each of", "listener probably seeks to the beginning"),
        remedy=("no need to seek",),
        never=("sick (127.0.0.1) probably", "killed", "polled too slowly", "blocked", "came out of order"),
    ),
    Disease(
        "a static member is restarted within its session (healthy)",
        _static_restart,
        says=("tatic member one", "came back", "without a rebalance"),
        never=("crashed", "killed", "polled too slowly", "two programs", "stayed away", "blocked"),
    ),
    Disease(
        "a static member stays away for longer than its session",
        _static_away,
        session_ms=SHORT_SESSION_MS,
        says=("static member one stayed away for longer than its session", "and it came back"),
        remedy=("Set session.timeout.ms of one above",),
        never=("polled too slowly", "probably crashed", "two programs", "blocked"),
    ),
    Disease(
        "a static member is stopped for good (the group is made smaller)",
        _static_gone,
        session_ms=60_000,
        says=("tatic member one", "until its session of 60 s is over"),
        remedy=("If it was meant to go", "barnabas groups remove-member", " one"),
        never=("polled too slowly", "crashed", "two programs", "blocked"),
    ),
    Disease(
        "an address in advertised.listeners that the program does not reach",
        _lost,
        alike=True,
        says=("sick", "asked for this group's coordinator", "it probably does not reach", "(127.0.0.1:1, "),
        remedy=("whether it can connect to 127.0.0.1:1", "correct advertised.listeners"),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "exist: "),
        # They do not ask for a group before they reach that address, so that there is nothing to explain.
        without=tuple(case for case in (*_CLASSIC, *_CONSUMER) if case[0] not in ("confluent-kafka", "barnabas")),
    ),
    Disease(
        "a transaction that its producer does not end, and a read_committed group",
        _open_transaction,
        alike=True,
        says=("read_committed consumers wait for an open transaction", "(of-", "without a record for"),
        remedy=("start it again", "transaction.timeout.ms"),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "stands still"),
    ),
    Disease(
        "a program that leaves without a commit of what it has got",
        _leaves_uncommitted,
        says=("sick", "records uncommitted that it had got", "committed 3", "are read again"),
        remedy=("before it closes its consumer", "enable.auto.commit"),
        never=("crashed", "killed", "polled too slowly", "blocked", "stands still", "perhaps, as"),
        poll_ms=8_000,
        # The others fetch ahead of the program.
        without=tuple(case for case in (*_CLASSIC, *_CONSUMER) if case[0] not in ("aiokafka", "kafka-python")),
    ),
    Disease(
        "a topic grows, and the leader of the group does not notice it for minutes",
        _grown_unnoticed,
        alike=True,
        says=("-2 to ", "-3 are assigned to no member since", "and 2 records wait there", "has probably not noticed"),
        remedy=("Wait until the leader", "metadata.max.age.ms", "restart of all members"),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "stands still"),
        # kafka-python asks for metadata more often than that.
        without=(("kafka-clients (Java)", "classic"), ("kafka-python", "classic"), *_CONSUMER),
    ),
    Disease(
        "a topic grows (healthy)",
        _grown,
        says=("opic", "grew from 2 to 4 partitions"),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked"),
    ),
    Disease(
        "a partition is added, and a member reads it from latest on",
        _grown_at_latest,
        alike=True,
        says=("sick", "asked for the end of a partition", "does not read 0 to 9", "auto.offset.reset=latest probably"),
        remedy=("auto.offset.reset=earliest", "--to-offset 0"),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "seeks to the end"),
    ),
    Disease(
        "offsets are set back by a program that is not a member",
        _offsets_reset,
        says=("The client nightly-job (127.0.0.1, ", "not a member, set 1 committed offset", "-1 back from 10 to 3"),
        remedy=("read again what they have read", "--to-offset 10"),
        never=("crashed", "killed", "polled too slowly", "blocked"),
    ),
    Disease(
        "a member commits an older offset after a newer one",
        _committed_back,
        says=("sick", "-1 back from 10 to 7", "either it went back (seek), or its commits came out of order"),
        remedy=("commit offsets in their order",),
        never=("crashed", "killed", "polled too slowly", "blocked", "not a member"),
    ),
    Disease(
        "a member commits an offset after the end of the log",
        _committed_beyond,
        alike=True,
        says=("sick (127.0.0.1), member ", "-1 at 1,000, and its log ends at 10: there is no such record"),
        remedy=("last offset that was read plus one", "--to-offset 10"),
        never=("crashed", "killed", "polled too slowly", "blocked", "not a member"),
    ),
    Disease(
        "records are deleted before a member reads them, and its position falls back to latest",
        _deleted_records,
        says=("sick", "-1 at 10, and the log begins at 15", "the end, 20", "does not read 15 to 19"),
        remedy=("retention.ms", "auto.offset.reset=latest skips"),
        never=("crashed", "killed", "polled too slowly", "blocked"),
    ),
    Disease(
        "records are deleted before a member reads them, and auto.offset.reset is none",
        partial(_deleted_records, reset="none"),
        says=(
            "sick",
            "-1 at 10, and the log begins at 15",
            "neither for the beginning nor for the end",
            "reads nothing",
        ),
        remedy=("Stop the members", ":1 --to-earliest --execute", "auto.offset.reset=earliest or latest"),
        never=("crashed", "killed", "polled too slowly", "blocked", "paused", "stands still"),
        without=((JAVA, "classic"), (JAVA, "consumer")),
    ),
    Disease(
        "rebalance listener that takes long",
        _slow_revoke,
        says=("healthy", "because sick", "late"),
        remedy=("in the listener",),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked"),
    ),
    Disease(
        "a regular expression begins to match a topic (healthy)",
        _regex_matches,
        says=("regular expression", "match", "-later"),
        # Its heartbeats starve after it has rebalanced: that is the story.
        grades={("kafka-python", "classic"): SILENT},
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked"),
    ),
    Disease(
        "a member that never revokes its partitions",
        _never_revokes,
        says=("sick", "did not revoke", "within 6 s"),
        remedy=("max.poll.interval.ms",),
        never=("crashed", "killed", "restarted", "blocked"),
        without=_CLASSIC,
        poll_ms=6_000,
        session_ms=SHORT_SESSION_MS,
    ),
    Disease(
        "a new version with another assignor, without the old one",
        _other_assignor,
        alike=True,
        says=("sick", "may not join", "roundrobin", "support range"),
        remedy=("with both assignors first",),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked"),
        without=_CONSUMER,
    ),
    Disease(
        "a session timeout that the broker does not allow",
        _short_session,
        alike=True,
        says=("sick", "may not join (INVALID_SESSION_TIMEOUT)", "is 1 s", "at least 6 s"),
        remedy=("Set session.timeout.ms", "group.min.session.timeout.ms"),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked"),
        without=_CONSUMER,
    ),
    Disease(
        "an assignor that fails",
        _failing_assignor,
        session_ms=SHORT_SESSION_MS,
        says=("sick", "it was to assign partitions and has not, so its assignor may have failed"),
        remedy=("its last lines of log",),
        never=("polled too slowly", "restarted", "blocked"),
        without=(*_CONSUMER, ("confluent-kafka", "classic"), (JAVA, "classic")),
    ),
    Disease(
        "a new version that reads another topic",
        _other_topic,
        alike=True,
        says=("sick", "joined", "and reads", "-new, which no member read just before"),
        remedy=("If it is another program", "If it is a new version"),
        # Its heartbeats starve after it has rebalanced: that is the story.
        grades={("kafka-python", "classic"): SILENT},
        never=("crashed", "killed", "polled too slowly"),
    ),
    Disease(
        "a deployment that goes back to the classic protocol (healthy)",
        _downgraded,
        alike=True,
        says=("Downgraded to the classic protocol", "sick", "1 member of the classic protocol went on"),
        never=("crashed", "killed", "polled too slowly", "blocked"),
        without=_CLASSIC,
    ),
    Disease(
        "offsets expired, and a member goes on at latest",
        _offsets_expired,
        alike=True,
        says=("expired",),
        remedy=("auto.offset.reset",),
        never=("crashed", "killed", "polled too slowly", "blocked"),
    ),
    Disease(
        "a group that is behind for a while (healthy)",
        _lags,
        alike=True,
        says=("joined",),
        # That a new client "probably knew no topic before" is right of a slow machine, and no disease.
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked", "is probably", "it probably"),
    ),
    Disease(
        "a topic is deleted and created again",
        _topic_again,
        says=("opic ", "was created again with", "after it was deleted"),
        never=("crashed", "killed", "polled too slowly", "restarted", "blocked"),
    ),
    Disease(
        "the broker is restarted (healthy)",
        _broker_restart,
        says=("coordinator moved to this broker: 2 members, no rebalance",),
        never=("crashed", "killed", "polled too slowly", "it was restarted", "blocked"),
    ),
)
