"""`barnabas groups doctor`: what is wrong with groups, worst first, with evidence and remedy."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import ConfigResource, GroupDescription, ResourceType
from barnabas_client.cli import clients
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command, add_since, checked
from barnabas_client.cli.failures import DONE, FAILED, USAGE
from barnabas_client.cli.output import Output, Style
from barnabas_client.history.located import locate
from barnabas_client.history.present import (
    events,
    is_absent,
    like,
    observed,
    of_all_brokers,
    successors,
    waited,
    without_members,
)
from barnabas_explain.catalog import GroupDeleted
from barnabas_explain.doctor import (
    OF_EVENTS,
    OF_NOW,
    PATIENCE_MS,
    SEVERITIES,
    SINCE_MS,
    Diagnosis,
    Present,
    examine,
    examine_missing,
    found_ms,
    notes,
    patience_of,
    too_early,
    worst_first,
)
from barnabas_explain.group_ids import OF_IDS, Sign, Spelling, meant, sign, together, with_together
from barnabas_explain.words import capital, moment, ms
from barnabas_protocol.counts import counted
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.suggestions import did_you_mean

#: The setting of brokers after which offsets that stand still are reported.
_PATIENCE: Final = "group.stuck.offset.ms"
#: Records that wait for longer are noted, in ms: a group commits every few seconds.
_WAITED_MS: Final = 15_000
#: The name of any finding in options.
ANY: Final = "finding"
#: The names of findings that --ignore takes: kinds, severities, and any.
_IGNORABLE: Final = (ANY, *SEVERITIES.values(), *OF_EVENTS, *OF_NOW, *OF_IDS)


class Ignored(NamedTuple):
    """Findings that are meant so.

    Attributes:
        finding: a kind, a severity, or :data:`ANY`.
        groups: the names of the groups, as a pattern of a shell.
    """

    finding: str
    groups: str

    def has(self, diagnosis: Diagnosis) -> bool:
        """Whether a finding is one of these."""
        names = (ANY, diagnosis.kind, SEVERITIES[diagnosis.severity])
        return self.finding in names and (self.groups == diagnosis.group or fnmatchcase(diagnosis.group, self.groups))


def ignored(text: str) -> Ignored:
    """Parse ``FINDING`` or ``FINDING:GROUP``.

    Raises:
        ValueError: there is no such finding.
    """
    finding, _, groups = text.partition(":")
    if finding not in _IGNORABLE:
        close = did_you_mean(finding, _IGNORABLE)
        raise ValueError(f"{finding!r} is not a finding{close or ': its kind stands in brackets where it is printed'}")
    return Ignored(finding, groups or "*")


async def doctor(arguments: Namespace, output: Output) -> int:
    """Print what is wrong with groups; the status is 1 if anything is, 2 if a group could not be examined.

    What is meant so (--ignore) is left out.
    """
    try:
        return await _doctor(arguments, output)
    except KafkaError as error:
        output.error(for_command_line(error) + arguments.servers.note(error))
        return USAGE


async def _doctor(arguments: Namespace, output: Output) -> int:
    now = time.time_ns() // 1_000_000
    since = now - SINCE_MS if arguments.since is None else arguments.since.ms(now)
    diagnoses: list[Diagnosis] = []
    signs: list[Sign] = []
    absent: dict[str, Present] = {}
    early: list[int] = []
    failed = False
    given: list[str] = list(dict.fromkeys(arguments.group))
    async with clients.admin(arguments) as admin:
        patience_ms = await _patience(admin)
        listed = await admin.list_consumer_groups(raise_errors=False)
        for error in listed.errors:
            failed = True
            output.error(f"{for_command_line(error)}. The groups that this broker coordinates are not examined")
        shares = [one.group_id for one in listed if "share" in (one.type, one.protocol_type)]
        if given:
            shares = [name for name in shares if name in given]
        for name in shares:
            found = await _of_shares(admin, name, arguments, now, since)
            if found is None:
                output.note(f"{name} is a share group, of which the brokers record no events: `barnabas shares stuck`.")
            diagnoses += found or ()
        names = given or sorted(one.group_id for one in listed)
        names = [name for name in names if name not in shares]
        described = await admin.describe_consumer_groups(names, raise_errors=False) if names else []
        for group in described:
            try:
                if group.error is not None:
                    found, deleted = await _without_group(admin, group, arguments, now, since)
                    if given:
                        await note_meant(admin, group.group_id, output)
                    if not found:
                        output.note(
                            deleted
                            or f"If consumers of {group.group_id} run: perhaps they do not reach the address that the"
                            " broker tells them (advertised.listeners of the listener that they use), or no topic"
                            " matches their subscription."
                        )
                        raise group.error
                    diagnoses += found
                    continue
                past = await events(admin, group.group_id, clients.connect(arguments), since)
                known = await observed(admin, group, clients.connect(arguments))
                found = examine(known, past, now, since)
                found = await of_all_brokers(admin, clients.connect(arguments), found, past, since)
                longest = patience_of(known, past, patience_ms)
                joined = too_early(known, past, now, longest)
                if is_absent(found):
                    absent[group.group_id] = known
                else:
                    diagnoses += found
                if joined is not None and not found:
                    early.append(joined)
                elif not found and (places := await waited(admin, known, now - _WAITED_MS)):
                    output.note(
                        f"Records have waited for more than {ms(_WAITED_MS)} in {counted(places, 'partition')} of"
                        f" {group.group_id}: if an offset there stands still, that is found {ms(longest)} after it has"
                        f" stopped ({_PATIENCE}, or max.poll.interval.ms if that is longer)."
                    )
                if (of_group := sign(known, past)) is not None:
                    signs.append(of_group)
                for note in notes(known if given else replace(known, markers=frozenset())):
                    output.note(note)
                if given and not group.members:
                    await note_meant(admin, group.group_id, output)
            except KafkaError as error:
                failed = True
                output.error(for_command_line(error))
            output.check()
        diagnoses += await without_members(admin, clients.connect(arguments), absent, now, since)
        for name in given if any(isinstance(each, Spelling) for each in signs) else ():
            signs += [each for each in await like(admin, name) if each not in signs]
        signs += await successors(admin, clients.connect(arguments), signs, None if given else described)
    of_several = together(signs)
    diagnoses = [*with_together(diagnoses, of_several), *{each.group: each for each in of_several.values()}.values()]
    left = [each for each in diagnoses if not any(one.has(each) for one in arguments.ignore)]
    dropped, diagnoses = len(diagnoses) - len(left), left
    if dropped:
        output.note(f"{capital(counted(dropped, 'finding'))} ignored.")
    diagnoses = worst_first(diagnoses, now)
    if output.json:
        output.data([each.as_data() for each in diagnoses])
    else:
        for each in diagnoses:
            print_diagnosis(each, output)
        if not diagnoses and not failed:
            more = " else" if dropped else ""
            output.line(f"Nothing{more} is wrong with {counted(len(names) + len(shares), 'group')}.")
    if early:
        output.note(_note_early(early, patience_ms))
    if failed:
        return USAGE
    return FAILED if diagnoses else DONE


def print_diagnosis(diagnosis: Diagnosis, output: Output) -> None:
    """Print what is wrong with a group, with evidence and remedy."""
    what = f"{SEVERITIES[diagnosis.severity]}, {diagnosis.sure} [{diagnosis.kind}]"
    output.line((diagnosis.group, Style.HEAD), f"  {what}: {diagnosis.text}")
    for line in diagnosis.evidence:
        output.line(f"    {line}")
    if diagnosis.remedy is not None:
        output.line(f"    To do: {diagnosis.remedy}")


async def _patience(admin: Admin) -> int:
    """``group.stuck.offset.ms`` of the brokers; the default of Barnabas where it is not known."""
    with suppress(KafkaError):
        for broker in (await admin.describe_cluster()).brokers[:1]:
            resource = ConfigResource(ResourceType.BROKER, str(broker.node_id))
            (found,) = await admin.describe_configs([resource], [_PATIENCE])
            entry = found.entries.get(_PATIENCE)
            return PATIENCE_MS if entry is None or entry.value is None else int(entry.value)
    return PATIENCE_MS


def _note_early(joined: Sequence[int], patience_ms: int) -> str:
    """The note about groups without findings whose members have joined so many milliseconds ago."""
    one = len(joined) == 1
    who = f"A member joined {ms(joined[0])} ago" if one else f"Members of {len(joined)} groups joined lately"
    within = f"{ms(patience_ms)} to {ms(found_ms(patience_ms))}"
    text = f"{who}: offsets that stand still, and lag that grows, are found {within} after that"
    return f"{text} ({_PATIENCE}; later if max.poll.interval.ms is longer)."


async def _of_shares(admin: Admin, group: str, arguments: Namespace, now: int, since: int) -> list[Diagnosis] | None:
    """Examine a share group by its events; None if the brokers record none."""
    if not await locate(admin, [group], None):
        return None
    return examine(Present(group, ""), await events(admin, group, clients.connect(arguments), since), now, since)


async def note_if_empty(admin: Admin, group: str, output: Output) -> None:
    """Note which group with members was perhaps meant in place of one that has none."""
    (described,) = await admin.describe_consumer_groups([group], raise_errors=False)
    if not described.members:
        await note_meant(admin, group, output)


async def note_meant(admin: Admin, group: str, output: Output) -> None:
    """Note which group with members was perhaps meant in place of one that has none, or does not exist."""
    listed = await admin.list_consumer_groups()
    other = meant(group, (one.group_id for one in listed if one.state not in ("", "Empty", "Dead")))
    if other is not None:
        output.note(f"{group} has no members. Did you mean {other}, which has?")


async def _without_group(
    admin: Admin, group: GroupDescription, arguments: Namespace, now: int, since: int
) -> tuple[list[Diagnosis], str | None]:
    """Examine a group that does not exist by its events.

    Returns:
        What is wrong with it; and when it was deleted last, if nothing has happened after that.
    """
    if group.error is None or group.error.code != ErrorCode.GROUP_ID_NOT_FOUND:
        return [], None
    past = await events(admin, group.group_id, clients.connect(arguments), since)
    last = past[-1] if past else None
    deleted = f"{moment(last.time)}: {last.sentence().text}" if isinstance(last, GroupDeleted) else None
    return examine_missing(group.group_id, past, now, since), deleted


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("group", nargs="*", metavar="GROUP", help="default: all groups")
    add_since(parser, "what happened since a time, or since a duration ago, such as 10m (default: 1h)")
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        type=checked(ignored),
        metavar="FINDING[:GROUP]",
        help="leave out what is meant so: findings of a kind such as too_many_members, of a severity such as odd, or"
        " `finding` for any; of groups such as ci-*, or of all; repeatable",
    )


COMMAND: Final = Command(
    path=("groups", "doctor"),
    help="find out what is wrong with groups, worst first; the status is 1 if anything is, 2 after an error",
    add_arguments=_arguments,
    run=doctor,
)
