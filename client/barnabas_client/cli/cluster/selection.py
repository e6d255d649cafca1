"""Selects partitions of a cluster by the arguments of a command."""

from argparse import ArgumentParser
from collections.abc import Sequence

from barnabas_client.cli import values
from barnabas_client.cli.cluster.state import ClusterState
from barnabas_client.cli.command import checked
from barnabas_client.cli.failures import CommandError
from barnabas_client.cli.values import TopicSpec
from barnabas_client.structs import TopicPartition
from barnabas_protocol.suggestions import did_you_mean


def add_topics(parser: ArgumentParser) -> None:
    """Add the arguments that :func:`selected` takes."""
    parser.add_argument(
        "topics",
        nargs="*",
        type=checked(values.topic_spec),
        metavar="TOPIC[:P,P]",
        help="only these topics, or these partitions of them (default: all, including internal topics)",
    )


def selected(state: ClusterState, specs: Sequence[TopicSpec]) -> list[TopicPartition]:
    """The partitions of topics, ascending; all if `specs` is empty.

    Raises:
        CommandError: a topic or partition does not exist.
    """
    if not specs:
        return list(state.placement)
    numbers = {topic.name: sorted(topic.partitions) for topic in state.topics}
    chosen: set[TopicPartition] = set()
    for spec in specs:
        known = numbers.get(spec.topic)
        if known is None:
            raise CommandError(f"there is no topic {spec.topic!r}{did_you_mean(spec.topic, numbers)}")
        wanted = known if spec.partitions is None else spec.partitions
        for number in wanted:
            if number not in known:
                raise CommandError(f"there is no partition {number} of {spec.topic!r}: it has {len(known)}")
            chosen.add(TopicPartition(spec.topic, number))
    return sorted(chosen)
