"""Write the table of docs/observing.md about the kinds of findings: those that `--ignore` and `--until` take.

python -m tests.docs.findings
"""

from pathlib import Path
from typing import Final

from barnabas_explain.doctor import OF_EVENTS, OF_NOW
from barnabas_explain.group_ids import OF_IDS

PAGE: Final = Path(__file__).parents[2] / "docs" / "observing.md"
#: The text before the first of these lines and after the second is written by hand.
MARK: Final = "<!-- The table of findings is generated: make pages -->"
END: Final = "<!-- The end of the table of findings -->"
#: All kinds, in the order of the catalogue.
KINDS: Final = (*OF_EVENTS, *OF_NOW, *OF_IDS)

#: What each kind is about.
MEANING: Final = {
    "aborted_records_read": "a member is given records of aborted transactions, as it is not `read_committed`",
    "began_late": "members begin to read long after they got their partitions: they load something first",
    "blocked": "a member was silent for longer than its session, and came back: blocked, paused, or cut off",
    "broker_not_reached": "members do not reach the broker that leads some of their partitions",
    "closed_by_broker": "the broker closed the connection of a member",
    "commits_last_record": "a member commits the offset of the last record in place of the next one",
    "commits_of_another": "a member commits offsets of other partitions",
    "commits_of_lost": "a member sets back offsets of partitions that another one owns",
    "commits_often": "a member commits nearly each record by itself",
    "committed_in_turn": "clients that are not members commit the same partitions in turn",
    "consumer_loop": "a program makes a consumer again and again, alone in its group",
    "consumer_per_call": "a member joins, reads for less than a second, and leaves, again and again",
    "consumers_at_once": "a program makes many consumers in one group",
    "consumers_not_closed": "a program makes new consumers, and does not close the old ones",
    "crash_loop": "a member crashes again and again",
    "cut_connections": "something between clients and broker ends connections at one age",
    "denied": "the user of a member may not read the group any more",
    "deployment": "members were replaced one by one",
    "different_subscriptions": "members of one group subscribe to topics that have nothing in common",
    "disconnected": "a member closed its connection without leaving: its partitions wait for the end of its session",
    "empty_topic": "members subscribe to a topic that has no record",
    "fencing": "two programs fence each other, as they have the same `transactional.id`",
    "fetches_waited": "Fetches of a member wait for `fetch.min.bytes` while records are there",
    "goes_back": "a member goes back to older records after each rebalance",
    "group_each": "instances of one program possibly have a `group.id` each",
    "hot_partition": "one partition has nearly all records that are not consumed",
    "killed": "a member probably crashed or was killed",
    "lag_grows": "less is consumed than written",
    "late_heartbeats": "members hear of rebalances late, as their heartbeats are seldom, and the others wait",
    "late_member": "a member rejoins late, and the others wait",
    "left_and_joined": "a member left and joined again at once: polled too slowly, or unsubscribed",
    "left_topic": "members have removed a topic from their subscriptions, no member reads it, and records wait there",
    "left_out": "a program with `assign()` does not read partitions that were added",
    "left_uncommitted": "programs leave again and again without a commit of records that they had got",
    "never_joined": "a client asks for the coordinator of a group, and does not join",
    "new_group_id": "a program has a new `group.id` at each start",
    "new_instance": "a program has a new `group.instance.id` at each start",
    "no_common_assignor": "a member has no assignor that the others have, and may not join",
    "no_heartbeats": "the heartbeats of a member come too late, while its connection is open",
    "no_members": "a group has no members, and records to read",
    "no_reset": "the next records of a member were deleted, and it goes on nowhere: `auto.offset.reset` is probably"
    " `none`",
    "no_subscription": "a member subscribes to no topic, or its pattern matches none",
    "no_topic": "members subscribe to a topic that does not exist, or that was deleted",
    "not_committed": "a member reads on and commits seldom or never, or its commits are refused",
    "nothing_committed": "a member reads, and nothing is committed",
    "nothing_fetched": "a member has never fetched its partitions",
    "offset_out_of_range": "a committed offset is outside of its log",
    "open_transaction": "a transaction that is open for long keeps `read_committed` members waiting",
    "overlapping_runs": "a run of a program begins before the last one has ended",
    "own_topic": "a member probably reads a topic that its own program writes",
    "pending_offsets": "offsets are pending in a transaction that is open for long",
    "rebalancing": "a rebalance is under way for long",
    "records_aborted": "a producer aborts all of its transactions, so that members get nothing",
    "records_deleted": "records were deleted before a member read them",
    "regex_refused": "the pattern of a member is no regular expression of RE2, and it may not join",
    "renamed": "the members of a group are probably in another one now",
    "restart_loop": "a member leaves and joins again and again",
    "restarted": "a member was restarted several times",
    "runs_uncommitted": "runs of a program end without a commit",
    "runs_behind": "each run of a program leaves more records than the one before",
    "group_deleted": "a client deletes the group between the runs of a program",
    "same_instance": "two programs have the same `group.instance.id`",
    "session_refused": "the session timeout of a member is out of bounds, and it may not join",
    "share_dead_letters": "records of a share group became dead letters",
    "share_locks_expired": "locks of records of a share group expired",
    "share_records_archived": "records of a share group were given up",
    "share_records_released": "records of a share group were given back",
    "share_window_blocked": "records of a share group that come back block its window",
    "silent": "a member was silent for longer than its session: blocked, paused, or cut off",
    "silent_or_slow": "a member was silent, or polled too slowly",
    "skips_records": "a member jumps over records: to the end, or to offsets after the committed ones",
    "slow_member": "the partitions of one member have nearly all of the lag",
    "slow_poll": "a member polled too slowly (`max.poll.interval.ms`)",
    "static_away": "a static member was away for longer than its session",
    "storm": "6 rebalances or more within a minute; of the consumer protocol: epochs because programs come and go",
    "stuck": "a member does not get past an offset",
    "subscribe_loop": "a program calls `subscribe()` in its loop",
    "subscribes_in_turn": "a member subscribes to a topic and drops it, again and again",
    "too_many_members": "there are more members than partitions",
    "topic_denied": "the user of a member may not read its topic",
    "topics_apart": "members have no partition, as the assignor `range` assigns each topic alone",
    "topics_come_and_go": "topics that the pattern of members matches are created and deleted again and again",
    "two_services": "two services have one `group.id`",
    "two_spellings": "one `group.id` is spelt in two ways",
    "unassigned": "partitions that a topic has got are assigned to no member, as the leader has not noticed them",
}


def render() -> str:
    """The page with the present table."""
    lines = ["| finding | what is wrong |", "|---|---|"]
    lines += [f"| `{kind}` | {MEANING[kind]} |" for kind in sorted(KINDS)]
    before, rest = PAGE.read_text("utf-8").split(MARK)
    return "\n".join([f"{before}{MARK}", "", *lines, "", f"{END}{rest.split(END)[1]}"])


if __name__ == "__main__":
    PAGE.write_text(render(), "utf-8")
