"""The records of share groups (KIP-932): ShareFetch and ShareAcknowledge."""

from typing import Any, Final

from barnabas_protocol.registry import ApiKey
from tests.interop.behaviour.common import make_topic, produce
from tests.interop.behaviour.language import Ask, Difference, Family, Hang, Scenario, Step, ask, flat
from tests.interop.behaviour.scenarios.consumer_groups import A, B
from tests.interop.behaviour.scenarios.share_groups import from_the_beginning, join, joined, offsets

_Steps = Step | list[Step]
VERSIONS: Final = (1, 2)
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Said = tuple[int, int, tuple[int, ...]]
#: A topic id that no topic has.
NOWHERE: Final = b"nowhere-at-all.."


def acknowledged(*said: Said) -> list[dict[str, Any]]:
    """Batches of acknowledgements: first and last offset, types."""
    return [
        {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)} for first, last, types in said
    ]


def fetch(
    epoch: int = 0,
    *said: Said,
    member: str | None = A,
    group: str | None = "$group",
    partitions: tuple[int, ...] | None = None,
    topic_id: Any = "$topic_id",
    forgotten: tuple[int, ...] = (),
    version: int = 2,
    **given: Any,
) -> Ask:
    """ShareFetch; the first of a session names partition 0, those that say something of records too."""
    options = {name: given.pop(name) for name in ("until", "quiet", "save", "on", "later") if name in given}
    if partitions is None:
        partitions = (0,) if epoch == 0 or said else ()
    named = [{"partition_index": number, "acknowledgement_batches": acknowledged(*said)} for number in partitions]
    content: dict[str, Any] = {
        "group_id": group,
        "member_id": member,
        "share_session_epoch": epoch,
        "max_wait_ms": 5000 if epoch == 0 else 300,
        "min_bytes": 1,
        "max_bytes": 1_000_000,
        "max_records": 500,
        "batch_size": 500,
        **given,
        "topics": [{"topic_id": topic_id, "partitions": named}] if named else [],
        "forgotten_topics_data": [{"topic_id": topic_id, "partitions": list(forgotten)}] if forgotten else [],
    }
    return ask(ApiKey.SHARE_FETCH, version, **options, **content)


def say(
    epoch: int,
    *said: Said,
    member: str | None = A,
    group: str | None = "$group",
    partition: int | None = 0,
    topic_id: Any = "$topic_id",
    version: int = 2,
    **given: Any,
) -> Ask:
    """ShareAcknowledge."""
    options = {name: given.pop(name) for name in ("until", "quiet", "save", "on") if name in given}
    part = {"partition_index": partition, "acknowledgement_batches": acknowledged(*said)}
    return ask(
        ApiKey.SHARE_ACKNOWLEDGE,
        version,
        **options,
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        **given,
        topics=[] if partition is None else [{"topic_id": topic_id, "partitions": [part]}],
    )


def _begun(title: str, *steps: _Steps) -> Scenario:
    """Member A has joined; $topic has two partitions, the first one five records in two batches."""
    start = (
        make_topic(partitions=2),
        produce("1", "2", "3"),
        produce("4", "5"),
        from_the_beginning(),
        joined(),
    )
    return Scenario(f"Share records: {title}", flat(*start, *steps), texts=True)


def _acquired(title: str, *steps: _Steps, version: int = 2) -> Scenario:
    """Member A has acquired all records; the epoch of its session is 1."""
    return _begun(title, fetch(version=version, quiet=True), *steps)


#: Requests that are refused, or not: what is wrong, and the fields.
WRONG: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("an empty group id", {"group": ""}),
    ("no group id", {"group": None}),
    ("an empty member id", {"member": ""}),
    ("no member id", {"member": None}),
    ("an unknown group", {"group": "$group-unknown"}),
    ("an unknown member", {"member": B}),
)

FETCHES: Final = (
    *(
        _begun(f"fetched with v{version}", fetch(version=version), fetch(1, version=version), offsets())
        for version in VERSIONS
    ),
    *(
        _begun(f"ShareFetch with {what}", fetch(**given))
        for what, given in (
            *WRONG,
            ("epoch 1 and no session", {"epoch": 1}),
            ("epoch -1 and no session", {"epoch": -1}),
            ("epoch -2", {"epoch": -2}),
            ("an unknown topic id", {"topic_id": NOWHERE}),
            ("no topic id", {"topic_id": bytes(16)}),
            ("an unknown partition", {"partitions": (0, 7)}),
            ("a negative partition", {"partitions": (-1,)}),
            ("no partitions", {"partitions": ()}),
            ("a partition twice", {"partitions": (0, 0)}),
            ("both partitions", {"partitions": (0, 1)}),
            ("forgotten partitions and a new session", {"forgotten": (1,)}),
            ("no records at most", {"max_records": 0, "max_wait_ms": 100}),
            ("a negative number of records", {"max_records": -1, "max_wait_ms": 100}),
            ("two records at most", {"max_records": 2}),
            ("two records at most, strictly", {"max_records": 2, "share_acquire_mode": 1}),
            ("four records at most, strictly", {"max_records": 4, "share_acquire_mode": 1}),
            ("batches of one record", {"batch_size": 1}),
            ("batches of no records", {"batch_size": 0}),
            ("batches of a negative size", {"batch_size": -1}),
            ("no bytes at most", {"max_bytes": 0, "max_wait_ms": 100}),
            ("negative bytes at most", {"max_bytes": -1, "max_wait_ms": 100}),
            ("few bytes at most", {"max_bytes": 1}),
            ("negative bytes at least", {"min_bytes": -1}),
            ("a negative wait", {"max_wait_ms": -1}),
            ("an unknown acquire mode", {"share_acquire_mode": 2}),
            ("renewals and numbers", {"is_renew_ack": True}),
            (
                "renewals, without numbers",
                {"is_renew_ack": True, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0},
            ),
        )
        for given in ({"epoch": 0, **given},)
    ),
    _begun("ShareFetch that acknowledges and opens a session", fetch(0, (0, 0, (ACCEPT,)))),
    _acquired("ShareFetch with a newer epoch", fetch(2)),
    _acquired("ShareFetch with an older epoch", fetch(1, quiet=True), fetch(1)),
    _acquired("ShareFetch with another epoch, and then the right one", fetch(7), fetch(1)),
    _acquired("ShareFetch opens a second session", fetch(max_wait_ms=500)),
    _acquired("ShareFetch of another member's session", fetch(1, member=B)),
    _acquired("ShareFetch closes the session", fetch(-1), fetch(1), fetch(0)),
    _acquired("ShareFetch closes the session and names partitions", fetch(-1, partitions=(0,)), fetch()),
    _acquired("ShareFetch closes the session and acknowledges", fetch(-1, (0, 1, (ACCEPT,))), fetch()),
    _acquired("ShareFetch adds a partition", produce("6", partition=1), fetch(1, partitions=(1,))),
    _acquired("ShareFetch forgets its partition", produce("6"), fetch(1, forgotten=(0,))),
    _acquired("ShareFetch forgets a partition that it has not", produce("6"), fetch(1, forgotten=(1, 7))),
    _acquired("ShareFetch gets later records", produce("6"), fetch(1)),
    _acquired(
        "ShareFetch on a second connection with the same session",
        produce("6"),
        fetch(1, on="b"),
    ),
    _acquired(
        "a connection that is lost",
        join(B, on="b", quiet=True),
        Hang(),
        fetch(member=B, on="b", max_wait_ms=10_000),
    ),
    _acquired(
        "two members",
        join(B, on="b", quiet=True),
        produce("6", "7"),
        fetch(member=B, on="b"),
        say(1, (5, 5, (ACCEPT,))),
        say(1, (0, 0, (ACCEPT,)), member=B, on="b"),
        say(2, (5, 6, (ACCEPT,)), member=B, on="b"),
    ),
)

#: Acknowledgements in one request: how a scenario calls them, and what they say of records 0 to 4.
TAKEN: Final[tuple[tuple[str, tuple[Said, ...]], ...]] = (
    ("all accepted", ((0, 4, (ACCEPT,)),)),
    ("the first batch accepted", ((0, 2, (ACCEPT,)),)),
    ("a part accepted", ((1, 3, (ACCEPT,)),)),
    ("all released", ((0, 4, (RELEASE,)),)),
    ("all rejected", ((0, 4, (REJECT,)),)),
    ("all gaps", ((0, 4, (GAP,)),)),
    ("each with a type", ((0, 4, (ACCEPT, RELEASE, REJECT, GAP, ACCEPT)),)),
    ("two batches", ((0, 2, (ACCEPT,)), (3, 4, (RELEASE,)))),
)
REFUSED: Final[tuple[tuple[str, tuple[Said, ...]], ...]] = (
    ("nothing", ()),
    ("an unknown type", ((0, 4, (5,)),)),
    ("a negative type", ((0, 4, (-1,)),)),
    ("renewed without the flag", ((0, 4, (RENEW,)),)),
    ("no types", ((0, 4, ()),)),
    ("two types for five records", ((0, 4, (ACCEPT, RELEASE)),)),
    ("six types for five records", ((0, 4, (ACCEPT,) * 6),)),
    ("the last before the first", ((4, 0, (ACCEPT,)),)),
    ("negative offsets", ((-2, -1, (ACCEPT,)),)),
    ("batches that overlap", ((0, 2, (ACCEPT,)), (2, 4, (ACCEPT,)))),
    ("batches in the wrong order", ((3, 4, (ACCEPT,)), (0, 2, (ACCEPT,)))),
    ("the same batch twice", ((0, 2, (ACCEPT,)), (0, 2, (ACCEPT,)))),
    ("records that are not acquired", ((5, 9, (ACCEPT,)),)),
    ("more than is acquired", ((3, 7, (ACCEPT,)),)),
    ("a good batch and one that is not acquired", ((0, 2, (ACCEPT,)), (7, 8, (ACCEPT,)))),
)
SAID: Final = (*REFUSED[:1], *TAKEN, *REFUSED[1:])

ACKNOWLEDGEMENTS: Final = (
    *(
        _acquired(f"ShareAcknowledge v{version}: {what}", say(1, *said, version=version), fetch(2), offsets())
        for version in VERSIONS
        for what, said in SAID
        if version == 2 or (said and RENEW in said[0][2])
    ),
    *(_acquired(f"ShareFetch acknowledges: {what}", fetch(1, *said), fetch(2), offsets()) for what, said in SAID[1:]),
    *(
        _acquired(f"ShareAcknowledge with {what}", say(**{"epoch": 1, **given}))
        for what, given in (
            *WRONG,
            ("epoch 0", {"epoch": 0}),
            ("a newer epoch", {"epoch": 2}),
            ("epoch -2", {"epoch": -2}),
            ("an unknown topic id", {"topic_id": NOWHERE}),
            ("an unknown partition", {"partition": 7}),
            ("a partition that the session has not", {"partition": 1}),
            ("no partition", {"partition": None}),
        )
    ),
    _acquired("ShareAcknowledge of an unknown topic id", say(1, (0, 0, (ACCEPT,)), topic_id=NOWHERE)),
    _acquired("ShareAcknowledge of an unknown partition", say(1, (0, 0, (ACCEPT,)), partition=7)),
    _acquired("ShareAcknowledge of a partition that was not fetched", say(1, (0, 0, (ACCEPT,)), partition=1)),
    _begun("ShareAcknowledge without a session", say(1, (0, 0, (ACCEPT,))), say(-1, (0, 0, (ACCEPT,)))),
    _acquired("ShareAcknowledge closes the session", say(-1), say(1), fetch()),
    _acquired("ShareAcknowledge accepts, and closes the session", say(-1, (0, 1, (ACCEPT,))), fetch()),
    _acquired("accepted twice", say(1, (0, 4, (ACCEPT,))), say(2, (0, 4, (ACCEPT,)))),
    _acquired("accepted, then released", say(1, (0, 2, (ACCEPT,))), say(2, (0, 4, (RELEASE,))), fetch(3)),
    _acquired("released twice", say(1, (0, 4, (RELEASE,))), say(2, (0, 4, (RELEASE,)))),
    _acquired("released, then accepted", say(1, (0, 4, (RELEASE,))), say(2, (0, 4, (ACCEPT,)))),
    _acquired(
        "delivered until the limit",
        *([fetch(at, (3, 3, (RELEASE,))) for at in range(1, 6)]),
        fetch(6),
        offsets(),
    ),
    _acquired(
        "ShareAcknowledge v2: renewed",
        say(1, (0, 4, (RENEW,)), is_renew_ack=True),
        say(2, (0, 4, (ACCEPT,))),
    ),
    _acquired(
        "ShareAcknowledge v2: renewed and accepted",
        say(1, (0, 4, (RENEW, ACCEPT, RENEW, RELEASE, REJECT)), is_renew_ack=True),
        fetch(2),
    ),
    _acquired("ShareAcknowledge v2: not acquired, renewed", say(1, (7, 9, (RENEW,)), is_renew_ack=True)),
    _acquired(
        "ShareFetch v2: renewed",
        fetch(
            1,
            (0, 4, (RENEW,)),
            is_renew_ack=True,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=0,
            max_records=0,
        ),
        fetch(2, (0, 4, (ACCEPT,))),
    ),
)

RECORDS: Final = (
    _acquired(
        "records that are deleted",
        ask(
            ApiKey.DELETE_RECORDS,
            2,
            topics=[{"name": "$topic", "partitions": [{"partition_index": 0, "offset": 2}]}],
            timeout_ms=30_000,
            quiet=True,
        ),
        say(1, (0, 0, (ACCEPT,))),
        say(2, (2, 4, (RELEASE,))),
        fetch(3),
        offsets(),
    ),
    _begun(
        "keys, and compressed batches",
        produce(("k", "v"), ("k", None), compression="gzip"),
        fetch(max_bytes=1_000_000),
    ),
)

_NEGATIVE: Final = (
    "a negative number of records",
    "batches of a negative size",
    "negative bytes at most",
    "negative bytes at least",
    "a negative wait",
)


def _offsets_of(*titles: str, fields: tuple[str, ...] = ("start_offset",)) -> tuple[tuple[str, str], ...]:
    """The offsets of partition 0 in scenarios."""
    return tuple((f"Share records: {title}", f"*.partitions.0.{field}") for title in titles for field in fields)


DIFFERENCES: Final = (
    Difference(
        "The start of a share partition is stored when its first member fetches",
        "Apache Kafka stores it with the first acknowledgement. Until then, a new leader of the partition begins at "
        "the end of the log again, and the group misses what was written meanwhile.",
        _offsets_of(
            "fetched with v*",
            *(f"ShareAcknowledge v2: {what}" for what, _ in REFUSED),
            *(f"ShareFetch acknowledges: {what}" for what, _ in REFUSED[1:]),
            "ShareAcknowledge v1: *",
            fields=("start_offset", "lag"),
        ),
    ),
    Difference(
        "The start of a share partition moves with the acknowledgement",
        "Apache Kafka stores it with the next one. The lag is the same.",
        (
            *_offsets_of(
                *(
                    f"{api}: {what}"
                    for api in ("ShareAcknowledge v2", "ShareFetch acknowledges")
                    for what, said in TAKEN
                    if said[0][0] == 0 and what != "all released"
                )
            ),
            *_offsets_of("records that are deleted", fields=("start_offset", "lag")),
        ),
    ),
    Difference(
        "ShareFetch and ShareAcknowledge refuse an empty group id",
        "Apache Kafka looks for the group.",
        (
            ("Share records: ShareFetch with an empty group id", "*"),
            ("Share records: ShareAcknowledge with an empty group id", "*.error_code"),
        ),
    ),
    Difference(
        "ShareFetch of a group that does not exist is an invalid request",
        "Apache Kafka answers UNKNOWN_SERVER_ERROR.",
        (("Share records: ShareFetch with an unknown group", "*.error_code"),),
    ),
    Difference(
        "ShareFetch may name a partition twice",
        "It is fetched once. Apache Kafka answers UNKNOWN_SERVER_ERROR.",
        (("Share records: ShareFetch with a partition twice", "*"),),
    ),
    Difference(
        "ShareFetch refuses negative numbers and unknown acquire modes",
        "Apache Kafka ignores the numbers, or answers UNKNOWN_SERVER_ERROR.",
        (
            *((f"Share records: ShareFetch with {what}", "*") for what in _NEGATIVE),
            ("Share records: ShareFetch with an unknown acquire mode", "*.error_code"),
        ),
    ),
    Difference(
        "ShareFetch with batches of no records acquires all as one batch",
        "Apache Kafka acquires a batch that ends before the log begins.",
        (("Share records: ShareFetch with batches of no records", "*.acquired_records.*"),),
    ),
)

FAMILY: Final = Family("Records of share groups", (*FETCHES, *ACKNOWLEDGEMENTS, *RECORDS), DIFFERENCES)
