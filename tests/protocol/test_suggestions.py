"""Names that were perhaps meant."""

import pytest

from barnabas_protocol.suggestions import did_you_mean, nearest

KNOWN = ("num.partitions", "num.io.threads", "log.dirs")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("num.partition", ", did you mean num.partitions?"),
        ("LOG.DIR", ", did you mean log.dirs?"),
        ("retention", ""),
        ("", ""),
    ],
)
def test_the_name_that_was_meant(name: str, said: str) -> None:
    assert did_you_mean(name, KNOWN) == said


def test_upper_and_lower_case_do_not_count() -> None:
    assert nearest("topicpartition", ["TopicPartition", "x"]) == "TopicPartition"


def test_how_alike_names_have_to_be() -> None:
    assert nearest("num.threads", KNOWN) == "num.io.threads"
    assert nearest("num.threads", KNOWN, 0.95) is None
