"""What the driver finds out before anything is read: which partitions there are, and where reading starts and ends."""

import logging
from collections.abc import Mapping
from typing import Final

from barnabas_client.structs import TopicPartition
from barnabas_pipeline.offsets import EARLIEST, LATEST, Offset
from barnabas_pipeline.options import Bound, ReadOptions
from barnabas_pipeline.remote import Remote

_log: Final = logging.getLogger("barnabas_pipeline")


class DataLossError(RuntimeError):
    """Records are gone that were not read yet, and `failOnDataLoss` is true."""


def data_loss(options: ReadOptions, what: str) -> None:
    """Fail because of `what`, or warn if the user does not mind.

    Raises:
        DataLossError: with ``failOnDataLoss=true``, the default.
    """
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{what}. Some records may have been lost: they were deleted by retention before they were read, or the "
            "topic was deleted. To do: if you do not want the query to fail in such cases, set the option "
            "failOnDataLoss to false; it then goes on with what there is"
        )
    _log.warning("%s; failOnDataLoss is false: going on with what there is", what)


def find_partitions(
    remote: Remote, options: ReadOptions, *, may_miss: bool = False
) -> tuple[list[TopicPartition], dict[str, str]]:
    """The partitions that the options mean, ascending, and the ids of their topics.

    Args:
        remote: where they are.
        options: `subscribe`, `subscribePattern` or `assign`.
        may_miss: leave out topics and partitions that are not there.

    Raises:
        ValueError: a topic or partition that was named is not there, or no topic matches.
        KafkaError: the brokers cannot be asked.
    """
    wanted = options.topics
    topics = remote.topics(wanted.names)
    if wanted.pattern is not None:
        topics = {name: info for name, info in topics.items() if wanted.matches(name) and not info.internal}
    for name in wanted.names or ():
        if name not in topics and not may_miss:
            raise ValueError(
                f"topic '{name}' does not exist at {options.settings.bootstrap_servers}. To do: create it, or check "
                "its name in the option subscribe or assign"
            )
    found = [TopicPartition(name, number) for name, info in topics.items() for number in info.partitions]
    if wanted.assign is not None:
        missing = sorted(set(wanted.assign) - set(found))
        if missing and not may_miss:
            raise ValueError(f"partition {missing[0]} does not exist: topic '{missing[0].topic}' has no such number")
        found = [tp for tp in wanted.assign if tp in set(found)]
    return sorted(found), {name: info.id for name, info in topics.items() if info.id}


def resolve(
    remote: Remote,
    partitions: list[TopicPartition],
    bound: Bound,
    options: ReadOptions,
    *,
    latest_if_no_match: bool,
) -> dict[TopicPartition, int]:
    """Offsets for what the options say of where to start or end.

    Args:
        remote: whom to ask.
        partitions: all that are read.
        bound: what the options say.
        options: all of them.
        latest_if_no_match: what to take where no record is at or after the time; otherwise that is an error.

    Raises:
        ValueError: the options name other partitions than those that are read, or a time after all records.
        DataLossError: they name offsets that a partition does not have.
        KafkaError: the brokers cannot be asked.
    """
    if bound.named is not None and set(bound.named) != set(partitions):
        missing, more = sorted(set(partitions) - set(bound.named)), sorted(set(bound.named) - set(partitions))
        what = f"lacks {missing[0]}" if missing else f"names {more[0]}, which is not read"
        raise ValueError(
            f"option '{bound.option}' {what}: if it contains specific offsets or times, it must specify all partitions "
            "that are read and no "
            f"others{'' if bound.timestamps is not None else ' (-1 stands for the latest, -2 for the earliest)'}"
        )
    asked: Mapping[TopicPartition, int]
    if bound.timestamp is not None:
        asked = dict.fromkeys(partitions, bound.timestamp)
    elif bound.timestamps is not None:
        asked = bound.timestamps
    elif bound.offsets is not None:
        return _named_offsets(remote, bound.option, bound.offsets, options)
    else:
        return remote.offsets(dict.fromkeys(partitions, bound.everywhere))
    found = remote.offsets(asked)
    unmatched = sorted(tp for tp, offset in found.items() if offset < 0)
    if unmatched and not latest_if_no_match:
        raise ValueError(
            f"option '{bound.option}': no record of {unmatched[0]} has a timestamp of {asked[unmatched[0]]} or later. "
            "To do: give an earlier time, or set startingOffsetsByTimestampStrategy to 'latest'"
        )
    return {**found, **remote.latest(unmatched)}


def _named_offsets(
    remote: Remote, option: str, named: Mapping[TopicPartition, int], options: ReadOptions
) -> dict[TopicPartition, int]:
    """What the offsets in an option come to: within what the partitions have."""
    first, last = remote.earliest(named), remote.latest(named)
    found: dict[TopicPartition, int] = {}
    for tp, offset in sorted(named.items()):
        told = {EARLIEST: first[tp], LATEST: last[tp]}.get(offset, offset)
        if not first[tp] <= told <= last[tp]:
            data_loss(options, f"option '{option}' has offset {told} for {tp}, which has {first[tp]} to {last[tp]}")
        found[tp] = min(max(told, first[tp]), last[tp])
    return found


def initial(remote: Remote, options: ReadOptions) -> Offset:
    """Where a query without a checkpoint starts.

    Raises:
        ValueError, KafkaError: see above.
    """
    partitions, ids = find_partitions(remote, options)
    start = resolve(remote, partitions, options.start, options, latest_if_no_match=options.latest_if_no_match)
    return Offset(start, ids)


def final(remote: Remote, options: ReadOptions, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Where a batch ends: after all records where no record is as late as the ending time.

    Raises:
        ValueError, KafkaError: see above.
    """
    return resolve(remote, partitions, options.end, options, latest_if_no_match=True)
