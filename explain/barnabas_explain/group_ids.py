"""Group ids that were probably not meant: what only the ids of several groups show. Pure.

A program that makes a new ``group.id`` each time it starts has many groups, each of which had one member once. One such
group alone looks like one whose program is gone. Their names differ only in a number or in random characters at the
end, and their members had the same client id.

A ``group.id`` that is spelt in two ways, in upper and lower case for instance, makes two groups of one: each reads all
records.

Instances of a program that put the name of their machine into the ``group.id`` have a group each, and read all records
each. That may be meant.

A program whose ``group.id`` was changed leaves its old group behind, without members and with a lag that grows.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from shlex import quote
from typing import Final, NamedTuple

from barnabas_explain.catalog import Departure, GroupEvent, MemberJoined
from barnabas_explain.doctor import NO_MEMBERS, ODD, SICK, Diagnosis, Present
from barnabas_explain.findings import POSSIBLE, PROBABLE
from barnabas_explain.members import is_default
from barnabas_explain.words import count, listed, moment, ms

#: The kinds of the diagnoses.
NEW_GROUP_ID: Final = "new_group_id"
TWO_SPELLINGS: Final = "two_spellings"
RENAMED: Final = "renamed"
GROUP_EACH: Final = "group_each"
#: The kinds of diagnoses that come from the ids of several groups.
OF_IDS: Final = (NEW_GROUP_ID, TWO_SPELLINGS, RENAMED, GROUP_EACH)
#: So many groups show it.
_GROUPS: Final = 3
#: A UUID, hexadecimal digits with a number among them, or a number or time, at the end of a name.
_END: Final = re.compile(
    r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$|(?<=[-_.:])(?=[a-f]*[0-9])[0-9a-f]{6,}$"
    r"|(?<![0-9])(?<![0-9][-_.:T])[0-9]+([-_.:T][0-9]+)*Z?$",
    re.IGNORECASE,
)
#: The random end of the name of a pod of Kubernetes, that of a container (hexadecimal digits, a letter and a number
#: among them), or a UUID.
_INSTANCE: Final = re.compile(
    r"(?<=[-_.:])[bcdfghjklmnpqrstvwxz2456789]{5}$|(?<=[-_.:])(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{8,}$"
    r"|[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$"
)
#: What stands between the words of a name.
_SEPARATORS: Final = re.compile(r"[-_.\s]")
#: A name with fewer characters says nothing about others that are nearly the same.
_LEAST_CHARACTERS: Final = 4
#: How alike two ids are of which one was perhaps meant, from 0 to 1.
_ALIKE: Final = 0.8
#: Client ids and topics of a group that are compared with those of others.
_MOST: Final = 20
#: A program with a new id may be started so many milliseconds before the old one is stopped.
_OVERLAP_MS: Final = 600_000
#: Shorter ends may be those of programs that run side by side, such as the one of each data center.
_RANDOM: Final = 6


class OneLife(NamedTuple):
    """An empty group that had one member once, as far as its events say.

    Attributes:
        group: its id.
        pattern: its id with an asterisk for what differs.
        client: the client id of its member, with the pattern for the id of the group; None if there are no events.
        began: when the member joined, in ms since 1970.
        ended: when it was gone.
        left: what it has left, if it has records to read.
    """

    group: str
    pattern: str
    client: str | None = None
    began: int = 0
    ended: int = 0
    left: "Left | None" = None


class Left(NamedTuple):
    """A group without members that has records to read.

    Attributes:
        group: its id.
        client: the client id of its last member.
        topics: in which it has committed offsets.
        joined: when a member joined last, in ms since 1970.
        ended: when that member was gone.
        records: to read.
    """

    group: str
    client: str
    topics: frozenset[str]
    joined: int
    ended: int
    records: int


class Spelling(NamedTuple):
    """A group with members.

    Attributes:
        group: its id.
        clients: client ids of its members, in one spelling.
        topics: that its members subscribe to.
        began: when its first member joined, in ms since 1970; None if that is not known.
        pattern: its id with an asterisk for a random end, if it has one member and such an end; "" for none.
    """

    group: str
    clients: frozenset[str]
    topics: frozenset[str]
    began: int | None = None
    pattern: str = ""


#: What is kept of a group, to compare it with others.
Sign = OneLife | Left | Spelling


def spelling(name: str) -> str:
    """A name in the one spelling of all names that differ in case, in surrounding blanks, or in ``-``, ``_`` and ``.``
    only."""
    return _SEPARATORS.sub("-", name.strip()).casefold()


def sign(present: Present, events: Iterable[GroupEvent]) -> Sign | None:
    """The sign of a group; None if it has nothing that could be like another group.

    Args:
        present: the group now.
        events: its events, oldest first.
    """
    past = list(events)
    if not present.readers:
        left = _left(present, past)
        life = one_life(present, past)
        return left if life is None else life._replace(left=left)
    clients = sorted({reader.member.client_id or "" for reader in present.readers})[:_MOST]
    topics = sorted({topic for reader in present.readers for topic in reader.topics})[:_MOST]
    # A group begins in generation 0.
    began = next((event.time for event in past[:1] if event.generation <= 0), None)
    end = _INSTANCE.search(present.group) if len(present.readers) == 1 else None
    pattern = present.group[: end.start()] + "*" if end is not None and end.start() else ""
    # Clients of Java have the id of the group in theirs.
    clients = [each.replace(present.group, pattern) if pattern else each for each in clients]
    return Spelling(present.group, frozenset(map(spelling, clients)), frozenset(topics), began, pattern)


def _left(present: Present, events: Iterable[GroupEvent]) -> Left | None:
    """The records that a group without members has left; None if it has none, or if its last member is not known."""
    records = sum(present.lags.values())
    newest = list(events)[::-1]
    gone = next((event for event in newest if isinstance(event, Departure)), None)
    joined = next((event.time for event in newest if isinstance(event, MemberJoined)), 0)
    client = "" if gone is None else gone.member.client_id or ""
    if gone is None or not records or present.state != "Empty" or not client or is_default(client):
        return None
    topics = sorted({topic for topic, _ in present.lags})[:_MOST]
    return Left(present.group, client, frozenset(topics), joined, gone.time, records)


def renamed(left: Left, others: Iterable[Spelling]) -> Spelling | None:
    """The group that the program of a group without members is probably in now: a member with its client id reads one
    of its topics, and the group began when the other one ended, or later, and after its last member had joined."""
    for other in others:
        is_its_own = spelling(left.client) in other.clients and left.topics & other.topics
        if is_its_own and other.began is not None and other.began >= max(left.ended - _OVERLAP_MS, left.joined):
            return other
    return None


def meant(name: str, others: Iterable[str]) -> str | None:
    """The group or topic that was perhaps meant: its name is nearly `name`, and they do not differ in a number.

    Of a name with few characters, another character makes another name.
    """
    known = {spelling(other): other for other in others if other != name and _digits(other) == _digits(name)}
    found = get_close_matches(spelling(name), known, 1, _ALIKE if len(name) >= _LEAST_CHARACTERS else 1)
    return known[found[0]] if found else None


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def one_life(present: Present, events: Iterable[GroupEvent]) -> OneLife | None:
    """The life of a group that is empty and had one member once; None if it is another group.

    Args:
        present: the group now.
        events: its events, oldest first.
    """
    end = _END.search(present.group)
    if end is None or end.start() == 0 or present.state != "Empty" or not present.had_members:
        return None
    pattern = present.group[: end.start()] + "*"
    lives = [event for event in events if isinstance(event, MemberJoined | Departure)]
    if not lives:
        return OneLife(present.group, pattern)
    if len(lives) != 2:
        return None
    joined, gone = lives
    if not isinstance(joined, MemberJoined) or not isinstance(gone, Departure):
        return None
    if joined.member.member_id != gone.member.member_id:
        return None
    # Clients of Java have the id of the group in theirs.
    client = (joined.member.client_id or "").replace(present.group, pattern)
    return OneLife(present.group, pattern, client, joined.time, gone.time)


def together(signs: Iterable[Sign]) -> dict[str, Diagnosis]:
    """Find out which groups were probably made by one program, a new one each time it started, and which are one group
    whose id is spelt in two ways.

    Args:
        signs: of all groups.

    Returns:
        By group, the diagnosis of all groups of its pattern, whose group is the pattern, or of both spellings.
    """
    by_pattern: dict[str, list[OneLife]] = {}
    spellings: dict[str, list[Spelling]] = {}
    lefts: list[Left] = []
    by_client: dict[str, list[Spelling]] = {}
    instances: dict[tuple[str, frozenset[str], frozenset[str]], list[Spelling]] = {}
    # The last sign of a group knows most.
    for each in {one.group: one for one in signs}.values():
        left = each.left if isinstance(each, OneLife) else each
        if isinstance(left, Left):
            lefts.append(left)
        if isinstance(each, OneLife):
            by_pattern.setdefault(each.pattern, []).append(each)
        elif isinstance(each, Spelling):
            spellings.setdefault(spelling(each.group), []).append(each)
            for client in each.clients:
                by_client.setdefault(client, []).append(each)
            if each.pattern and each.topics:
                instances.setdefault((each.pattern, each.clients, each.topics), []).append(each)
    found: dict[str, Diagnosis] = {}
    for groups in instances.values():
        if len(groups) >= _GROUPS:
            found.update(dict.fromkeys((each.group for each in groups), _of_instances(groups)))
    for left in lefts:
        now = renamed(left, by_client.get(spelling(left.client), ()))
        if now is not None:
            found[left.group] = _of_renamed(left, now)
    for one, other in (pair for alike in spellings.values() for pair in pairwise(sorted(alike))):
        if one.clients & other.clients and one.topics & other.topics:
            found.update(dict.fromkeys((one.group, other.group), _of_spellings(one, other)))
    for pattern, lives in by_pattern.items():
        known = sorted((each for each in lives if each.client is not None), key=lambda each: each.began)
        if len(known) < _GROUPS or len({each.client for each in known}) > 1:
            continue
        is_random = all(len(each.group) - len(pattern) + 1 >= _RANDOM for each in known)
        if is_random or all(earlier.ended <= later.began for earlier, later in pairwise(known)):
            found.update(dict.fromkeys((each.group for each in lives), _diagnosis(pattern, known, len(lives))))
    return found


def _of_instances(groups: Sequence[Spelling]) -> Diagnosis:
    pattern, topics = groups[0].pattern, listed(sorted(groups[0].topics))
    clients = listed(sorted(groups[0].clients))
    text = f"{len(groups)} groups are named {pattern}, and have one member each, with the client id {clients}, that"
    text += f" reads {topics}: they are possibly instances of one program with a group.id each, which ends in the name"
    text += f" of the machine. Then each record is handled {len(groups)} times."
    remedy = (
        "If each record is to be handled once, give all instances the same group.id: they share the partitions. If each"
        " instance is to get all records (a broadcast), nothing; with assign() and without commits it leaves no group"
        " behind when it stops."
    )
    names = listed(sorted(each.group for each in groups))
    return Diagnosis(pattern, GROUP_EACH, ODD, text, POSSIBLE, (f"The groups: {names}.",), remedy)


def _of_renamed(left: Left, now: Spelling) -> Diagnosis:
    topics = listed(sorted(left.topics & now.topics))
    text = f"{left.group} has no members since {moment(left.ended)}, and {count(left.records, 'record')} to read: its"
    text += f" program is probably in the group {now.group} now, which began at {moment(now.began or 0)}, and has a"
    text += f" member with the client id {left.client} that reads {topics}, too."
    remedy = (
        f"If {now.group} replaced it: delete the old group (`barnabas groups delete {quote(left.group)}`). A member of"
        f" it would handle these records a second time. If {now.group} did not begin where it stopped, see"
        " `barnabas groups reset-offsets` first."
    )
    return Diagnosis(left.group, RENAMED, ODD, text, PROBABLE, remedy=remedy)


def _of_spellings(one: Spelling, other: Spelling) -> Diagnosis:
    both = f"{one.group} and {other.group}"
    topics = listed(sorted(one.topics & other.topics))
    clients = listed(sorted(one.clients & other.clients))
    text = f"{both} are probably one group whose id is spelt in two ways: they differ only in case, blanks or"
    text += f" separators, and both have members with the client id {clients} that read {topics}. Each group gets all"
    text += " records, so that each record is handled twice."
    remedy = (
        "Give all instances of the program the same group.id, letter by letter. The group that is left goes on at its"
        " own offsets."
    )
    return Diagnosis(both, TWO_SPELLINGS, SICK, text, PROBABLE, remedy=remedy)


def _diagnosis(pattern: str, known: Sequence[OneLife], groups: int) -> Diagnosis:
    took = sorted(life.ended - life.began for life in known)
    span = ms(took[0]) if ms(took[0]) == ms(took[-1]) else f"{ms(took[0])} to {ms(took[-1])}"
    each = "each" if groups == len(known) else f"{len(known)} of them"
    text = f"{groups} groups are named {pattern}, and have no members: {each} had one member once, with the client id"
    text += f" {known[0].client}, for {span}. Its program probably makes a new group.id each time it starts, and begins"
    text += " at its auto.offset.reset each time."
    newest = listed([life.group for life in reversed(known)])
    remedy = (
        "Give it a fixed group.id, so that it goes on where it stopped. If each run is to read everything: read with"
        " assign(), and do not commit. `barnabas groups delete` removes the old groups."
    )
    return Diagnosis(
        pattern, NEW_GROUP_ID, ODD, text, PROBABLE, (f"The newest ones: {newest}.",), remedy, known[-1].ended
    )


def with_together(diagnoses: Sequence[Diagnosis], found: Mapping[str, Diagnosis]) -> list[Diagnosis]:
    """Diagnoses without those of single groups that one of several groups replaces.

    Args:
        diagnoses: of one group or several.
        found: as of :func:`together`.
    """
    return [each for each in diagnoses if each.kind != NO_MEMBERS or each.group not in found]
