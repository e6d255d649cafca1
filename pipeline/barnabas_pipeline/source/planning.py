"""The driver's part before a query: which partitions exist, and the offsets at which reading starts and ends."""

from collections.abc import Mapping
from typing import Final

from barnabas_client.logs import logger
from barnabas_client.structs import TopicPartition
from barnabas_pipeline.brokers.remote import Remote
from barnabas_pipeline.source.offsets import EARLIEST, LATEST, SourceOffset
from barnabas_pipeline.source.options import Bound, ReadOptions

_log: Final = logger("barnabas_pipeline")


class DataLossError(RuntimeError):
    """Records were deleted before they were read, and `failOnDataLoss` is true."""


def data_loss(options: ReadOptions, what: str) -> None:
    """Report lost records: raise, or log a warning if the option ``failOnDataLoss`` is false.

    Args:
        options: the source's.
        what: what was lost.

    Raises:
        DataLossError: with ``failOnDataLoss=true``, the default.
    """
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{what}. Some records may have been lost: they were deleted by retention before they were read, or the "
            "topic was deleted. To do: if you do not want the query to fail in such cases, set the option "
            "failOnDataLoss to false; it then continues with the records that exist"
        )
    _log.warning(f"{what}; failOnDataLoss is false: continuing with the records that exist")


def find_partitions(
    remote: Remote, options: ReadOptions, *, may_miss: bool = False
) -> tuple[list[TopicPartition], dict[str, str]]:
    """Look up the partitions to read, ascending, and the ids of their topics.

    Args:
        remote: the brokers.
        options: the source's.
        may_miss: leave out topics and partitions that do not exist.

    Raises:
        ValueError: a topic or partition that the options name does not exist.
        KafkaError: the request failed.
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
    """Return the offset of each partition at which to start or end.

    Args:
        remote: the brokers.
        partitions: all partitions to read.
        bound: the start or the end that the options set.
        options: the source's.
        latest_if_no_match: use the latest offset if no record is at or after the time; if false, that is an error.

    Raises:
        ValueError: the options name other partitions than those to read, or a time after all records.
        DataLossError: the options name offsets that a partition does not have.
        KafkaError: the request failed.
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
        return remote.offsets(dict.fromkeys(partitions, bound.default))
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
    """Resolve the offsets in an option, limited to those that the partitions have."""
    first, last = remote.earliest(named), remote.latest(named)
    found: dict[TopicPartition, int] = {}
    for tp, offset in sorted(named.items()):
        wanted = {EARLIEST: first[tp], LATEST: last[tp]}.get(offset, offset)
        if not first[tp] <= wanted <= last[tp]:
            data_loss(options, f"option '{option}' has offset {wanted} for {tp}, which has {first[tp]} to {last[tp]}")
        found[tp] = min(max(wanted, first[tp]), last[tp])
    return found


def initial(remote: Remote, options: ReadOptions) -> SourceOffset:
    """Return where a query without a checkpoint starts.

    Raises:
        ValueError, DataLossError, KafkaError: as :func:`find_partitions` and :func:`resolve`.
    """
    partitions, ids = find_partitions(remote, options)
    start = resolve(remote, partitions, options.start, options, latest_if_no_match=options.latest_if_no_match)
    return SourceOffset(start, ids)


def final(remote: Remote, options: ReadOptions, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return where a batch ends: after the last record if none is at or after the ending time.

    Raises:
        ValueError, DataLossError, KafkaError: as :func:`resolve`.
    """
    return resolve(remote, partitions, options.end, options, latest_if_no_match=True)
