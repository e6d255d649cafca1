"""`barnabas topics`."""

import re
from pathlib import Path

from tests.client.cli.conftest import Cli
from tests.client.real_broker import ONLY_BARNABAS

pytestmark = ONLY_BARNABAS  # Kafka's brokers hear of what the controller has done after it was answered


async def test_topics_are_created_described_changed_and_deleted(cli: Cli) -> None:
    made = await cli("topics", "create", "b", "a", "-p", "2", "-c", "retention.ms=1000")
    assert made.lines == ["b: created, 2 partitions, 1 replica", "a: created, 2 partitions, 1 replica"]
    assert (await cli("topics", "list")).lines == ["a", "b"]
    assert (await cli("topics", "list", "--json")).json == ["a", "b"]
    described = await cli("topics", "describe", "a")
    assert re.sub(r"TopicId: \S{22}\t", "TopicId: X\t", described.out) == (
        "Topic: a\tTopicId: X\tPartitionCount: 2\tReplicationFactor: 1\t"
        "Configs: min.insync.replicas=1,retention.ms=1000\n"
        "\tTopic: a\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\n"
        "\tTopic: a\tPartition: 1\tLeader: 1\tReplicas: 1\tIsr: 1\n"
    )
    changed = await cli("topics", "alter", "a", "-p", "3", "--set", "max.message.bytes=9", "--unset", "retention.ms")
    assert changed.out == "a: changed: 3 partitions, max.message.bytes=9, retention.ms unset\n"
    (data,) = (await cli("topics", "describe", "a", "--json")).json
    assert len(data["partitions"]) == 3
    assert data["configs"]["max.message.bytes"] == {"value": "9", "source": "TOPIC"}
    assert data["configs"]["retention.ms"]["source"] == "DEFAULT"
    assert "\tmax.message.bytes=9\tTOPIC" in (await cli("topics", "describe", "a", "--configs")).lines
    assert (await cli("topics", "delete", "a", "b")).lines == ["a: deleted", "b: deleted"]
    assert (await cli("topics", "list")).out == ""


async def test_lists_in_configurations(cli: Cli) -> None:
    await cli("topics", "create", "t")
    changed = await cli("topics", "alter", "t", "--append", "cleanup.policy=compact")
    assert changed.out == "t: changed: cleanup.policy+=compact\n"
    changed = await cli("topics", "alter", "t", "--subtract", "cleanup.policy=delete")
    assert changed.out == "t: changed: cleanup.policy-=delete\n"
    (data,) = (await cli("topics", "describe", "--json")).json
    assert data["configs"]["cleanup.policy"]["value"] == "compact"


async def test_a_dry_run_changes_nothing(cli: Cli) -> None:
    assert "could be created" in (await cli("topics", "create", "t", "--dry-run")).out
    assert (await cli("topics", "list")).out == ""
    await cli("topics", "create", "t")
    assert (await cli("topics", "alter", "t", "-p", "5", "--dry-run")).out == "t: could be changed: 5 partitions\n"
    (data,) = (await cli("topics", "describe", "t", "--json")).json
    assert len(data["partitions"]) == 1


async def test_results_and_errors_are_reported_side_by_side(cli: Cli) -> None:
    await cli("topics", "create", "a")
    mixed = await cli("topics", "create", "a", "b", status=1)
    assert mixed.out == "b: created, 1 partition, 1 replica\n"
    assert mixed.err == (
        "barnabas: create topic 'a': TOPIC_ALREADY_EXISTS, Topic 'a' already exists. "
        "To do: use it as it is, or delete it first\n"
    )
    assert (await cli("topics", "create", "a", "--if-not-exists")).out == "a: already exists, unchanged\n"
    as_data = await cli("topics", "create", "a", "c", "--json", status=1)
    assert [(row["topic"], row["done"]) for row in as_data.json] == [("a", False), ("c", True)]
    gone = await cli("topics", "describe", "a", "x", status=1)
    assert gone.err == (
        "barnabas: describe topic 'x': UNKNOWN_TOPIC_OR_PARTITION. To do: create the topic, or check its name\n"
    )
    assert gone.lines[0].startswith("Topic: a\t")
    assert (await cli("topics", "delete", "x", "--if-exists")).out == "x: does not exist\n"
    await cli("topics", "delete", "x", status=1)
    assert "INVALID_CONFIG" in (await cli("topics", "alter", "a", "--set", "no.such.key=1", status=1)).err
    assert "nothing to change" in (await cli("topics", "alter", "a", status=2)).err


async def test_the_configuration_key_that_was_meant_is_suggested(cli: Cli) -> None:
    await cli("topics", "create", "t", "-p", "2")
    for words in (("create", "u", "-c", "retention.m=5"), ("alter", "t", "--set", "retention.m=5")):
        err = (await cli("topics", *words, status=1)).err
        assert "INVALID_CONFIG" in err
        assert err.endswith(" (retention.m, did you mean retention.ms?)\n")
        assert err.count("\n") == 1
    assert "did you mean" not in (await cli("topics", "alter", "t", "--set", "no.such.key=1", status=1)).err
    assert "did you mean" not in (await cli("topics", "alter", "t", "--set", "retention.ms=x", status=1)).err
    assert (await cli("topics", "alter", "t", "-p", "1", status=1)).err.startswith("barnabas: ")


async def test_internal_topics_are_shown_on_request(cli: Cli) -> None:
    await cli("topics", "create", "t")
    await cli("consume", "t", "-g", "g", "-e")
    assert (await cli("topics", "list")).lines == ["t"]
    assert "__consumer_offsets" in (await cli("topics", "list", "--internal")).lines


async def test_without_a_terminal_an_internal_topic_needs_yes(cli: Cli, tmp_path: Path) -> None:
    await cli("topics", "create", "t")
    await cli("consume", "t", "-g", "g", "-e")
    (tmp_path / "empty").touch()
    refused = await cli("topics", "delete", "t", "__consumer_offsets", status=2, stdin=tmp_path / "empty")
    assert refused.err.startswith(
        "barnabas: __consumer_offsets is internal. It holds the committed offsets of 1 group: "
    )
    assert "give --yes" in refused.err
    assert (await cli("topics", "list")).lines == ["t"], "nothing was deleted"
    yes = await cli("topics", "delete", "__consumer_offsets", "--yes", status=1)
    assert "Topic __consumer_offsets is internal and cannot be deleted" in yes.err
    assert "__consumer_offsets" in (await cli("topics", "list", "--internal")).lines


async def test_a_key_is_unset_only_if_it_exists(cli: Cli) -> None:
    await cli("topics", "create", "t", "-c", "retention.ms=5")
    unknown = await cli("topics", "alter", "t", "-p", "3", "--unset", "retention.m", status=1)
    assert unknown.err == "barnabas: topics have no configuration key 'retention.m', did you mean retention.ms?\n"
    assert "PartitionCount: 1\t" in (await cli("topics", "describe", "t")).out
    both = await cli("topics", "alter", "t", "--unset", "retention.ms", "--unset", "segment.bytes")
    assert both.lines == ["t: changed: retention.ms unset", "t: unchanged, not set: segment.bytes"]
    again = await cli("topics", "alter", "t", "--unset", "retention.ms")
    assert again.lines == ["t: unchanged, not set: retention.ms"]
    assert (await cli("topics", "alter", "t", "--unset", "retention.ms", "--json")).json["changes"] == []


async def test_a_key_is_suggested_without_any_topic(cli: Cli) -> None:
    err = (await cli("topics", "create", "u", "-c", "retention.m=5", status=1)).err
    assert err.endswith(" (retention.m, did you mean retention.ms?)\n")
