"""Write docs/compatibility.md: the differences from Apache Kafka that the scenarios declare, and their reasons.

python -m tests.interop.behaviour.page
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.interop.behaviour.compare import declaring
from tests.interop.behaviour.families import families
from tests.interop.behaviour.language import Ask, Family
from tests.interop.kafka_server import kafka_version

PAGE: Final = Path(__file__).parents[3] / "docs" / "compatibility.md"
#: Maximum number of scenarios that the page names for one difference.
NAMED: Final = 3

HEAD: Final = """\
# Compatibility with Apache Kafka

Barnabas is compared with Apache Kafka {version} in {scenarios} scenarios. A scenario sends requests over raw
connections and compares the responses field by field. Kafka's responses are stored beside the scenarios, so that
`make test-all` compares with them, and `make test` with one version of each. `make interop` also runs the scenarios
against Apache Kafka itself and checks that the stored responses are still right. An undeclared difference fails a test,
and so does a declaration without a difference.

Four things are not compared: values that differ from run to run (ids, ports, the time of day), the order of lists in
which order has no meaning, throttle times and disk sizes, and the texts beside error codes.

This page is generated from the declarations: `python -m tests.interop.behaviour.page`.

## Scenarios

| Area | Scenarios | APIs and versions |
|---|---|---|
"""

#: Differences that the answers to single requests do not show, by area.
UNSEEN: Final = {
    "Share groups, beyond single requests": (
        (
            "A ShareFetch is answered as soon as there are records",
            "Apache Kafka waits until there are as many bytes as it asks for, or its time is over.",
        ),
        (
            "The lag of a partition that another broker leads is -1",
            "DescribeShareGroupOffsets does not ask other brokers. `barnabas_share_group_lag` of that broker has it.",
        ),
        (
            "The state of a share partition has at most 5,000 batches, and no more than 4,000 record locks count",
            "Merging more would hold the event loop. Apache Kafka bounds them by the size of a record, about 52,000.",
        ),
        (
            "Records of a member whose session has ended are delivered again as soon as the write of its "
            "acknowledgements has failed",
            "In Apache Kafka their locks last until they expire, though the member can acknowledge nothing any more.",
        ),
        (
            "`simple` is the only assignor, and it assigns at once",
            "`group.share.assignors`, `group.share.assignment.interval.ms` and `group.share.persister.class.name` have "
            "no effect.",
        ),
        (
            "Topics for dead letters are not created",
            "`errors.deadletterqueue.auto.create.topics.enable` has no effect: create the topic with "
            "`errors.deadletterqueue.group.enable=true`.",
        ),
        (
            "At most 10,000 dead letters wait for another attempt",
            "What comes when there are more is tried once, and counted if it is lost: memory is bounded.",
        ),
    ),
}

SUITES: Final = """\
## Test suites of other clients

They are run by hand, from a checkout of their repositories.

| Suite | Settings of the broker | Result |
|---|---|---|
| kafka-python at a3b3836f, `test/integration` with `KAFKA_VERSION=4.2.0` | `node.id=0`, `num.partitions=4`, \
`group.initial.rebalance.delay.ms=0`, `group.min.session.timeout.ms=1000`, the authorizer with \
`super.users=User:ANONYMOUS` | 54 of 55 pass. `test_describe_metadata_quorum` fails: there is no quorum. 11 \
more, of SSL and SASL, start an Apache Kafka of their own, and one is for older versions |

The test "ignores invalid transaction fields" of kafkajs commits offsets with a transactional id and a producer id that
do not exist, and expects no error. Apache Kafka {version} answers INVALID_PRODUCER_ID_MAPPING, and so does Barnabas.
"""


def _covered(family: Family) -> str:
    versions: dict[str, set[int]] = {}
    for scenario in family.scenarios:
        for step in scenario.steps:
            if isinstance(step, Ask) and not step.quiet:
                versions.setdefault(step.api.title, set()).add(step.version)
    return ", ".join(f"{name} {_ranges(sorted(found))}" for name, found in sorted(versions.items()))


def _ranges(numbers: list[int]) -> str:
    """Format numbers as ranges: 1, 2, 3, 7 as 1-3/7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return "/".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def render() -> str:
    """Return the text of the page."""
    every = families()
    count = sum(len(family.scenarios) for family in every.values())
    lines = [HEAD.format(version=kafka_version(), scenarios=count).rstrip()]
    lines += [f"| {family.title} | {len(family.scenarios)} | {_covered(family)} |" for family in every.values()]
    lines += ["", "## Differences"]
    for family in every.values():
        if not family.differences:
            continue
        lines += ["", f"### {family.title}", ""]
        for difference in family.differences:
            shown = declaring(family, difference)
            more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
            where = "; ".join(shown[:NAMED]) + more
            lines.append(f"- **{difference.title}.** {difference.reason} *({where})*")
    for title, differences in UNSEEN.items():
        lines += ["", f"### {title}", "", *(f"- **{what}.** {why}" for what, why in differences)]
    same = [family.title for family in every.values() if not family.differences]
    if same:
        lines += ["", f"No differences: {', '.join(same)}."]
    lines += ["", SUITES.format(version=kafka_version()).rstrip()]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    argparse.ArgumentParser(description="Write docs/compatibility.md.").parse_args(argv)
    PAGE.write_text(render())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
