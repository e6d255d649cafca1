"""Programs that make a new ``group.id`` each time they start: many groups, each of which had one member once. Pure.

One such group alone looks like one whose program is gone. Several show it: their names differ only in a number or in
random characters at the end, and their members had the same client id.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from barnabas_explain.catalog import Departure, GroupEvent, MemberJoined
from barnabas_explain.doctor import ODD, Diagnosis, Present
from barnabas_explain.findings import PROBABLE
from barnabas_explain.words import listed, ms

#: The kind of the diagnosis.
NEW_GROUP_ID: Final = "new_group_id"
#: The kind of the diagnoses of single groups that it replaces.
_REPLACES: Final = "no_members"
#: So many groups show it.
_GROUPS: Final = 3
#: A UUID, hexadecimal digits with a number among them, or a number or time, at the end of a name.
_END: Final = re.compile(
    r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}$|(?<=[-_.:])(?=[a-f]*[0-9])[0-9a-f]{6,}$"
    r"|(?<![0-9])(?<![0-9][-_.:T])[0-9]+([-_.:T][0-9]+)*Z?$",
    re.IGNORECASE,
)
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
    """

    group: str
    pattern: str
    client: str | None = None
    began: int = 0
    ended: int = 0


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


def together(lives: Iterable[OneLife]) -> dict[str, Diagnosis]:
    """Find out which groups were probably made by one program, a new one each time it started.

    Args:
        lives: of all groups.

    Returns:
        By group, the diagnosis of all groups of its pattern, whose group is the pattern.
    """
    by_pattern: dict[str, list[OneLife]] = {}
    for life in lives:
        by_pattern.setdefault(life.pattern, []).append(life)
    found: dict[str, Diagnosis] = {}
    for pattern, groups in by_pattern.items():
        known = sorted((each for each in groups if each.client is not None), key=lambda each: each.began)
        if len(known) < _GROUPS or len({each.client for each in known}) > 1:
            continue
        is_random = all(len(each.group) - len(pattern) + 1 >= _RANDOM for each in known)
        if is_random or all(earlier.ended <= later.began for earlier, later in pairwise(known)):
            found.update(dict.fromkeys((each.group for each in groups), _diagnosis(pattern, known, len(groups))))
    return found


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
    return [each for each in diagnoses if each.kind != _REPLACES or each.group not in found]
