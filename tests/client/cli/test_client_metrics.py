"""`barnabas client-metrics`."""

from collections.abc import AsyncIterator

import pytest

from barnabas_client import Admin, AlterConfigOp, ConfigOp, ConfigResource, ResourceType
from tests.client.cli.conftest import Cli
from tests.client.real_broker import ONLY_BARNABAS

pytestmark = ONLY_BARNABAS


@pytest.fixture(autouse=True)
async def no_subscriptions(cli: Cli) -> AsyncIterator[None]:
    """The brokers outlive a test, and their subscriptions with them."""
    yield
    async with Admin(bootstrap_servers=cli.address) as admin:
        left = await admin.list_config_resources([ResourceType.CLIENT_METRICS])
        nothing = [AlterConfigOp(key, None, ConfigOp.DELETE) for key in ("metrics", "interval.ms", "match")]
        await admin.incremental_alter_configs(dict.fromkeys(left, nothing))


async def test_subscriptions_are_set_described_and_deleted(cli: Cli) -> None:
    printed = await cli(
        "client-metrics", "set", "shop", "--metrics", "org.apache.kafka.consumer.", "--metrics", "a.,b.",
        "--interval", "15s", "--match", "client_id=shop-.*",
    )  # fmt: skip
    assert printed.lines == [
        "shop: changed: metrics=org.apache.kafka.consumer.,a.,b., interval.ms=15000, match=client_id=shop-.*"
    ]
    await cli("client-metrics", "set", "all", "--metrics", "*", "--interval", "500ms")
    assert (await cli("client-metrics", "list")).lines == ["all", "shop"]
    assert (await cli("client-metrics", "list", "--json")).json == ["all", "shop"]
    assert [line.split() for line in (await cli("client-metrics", "describe")).lines] == [
        ["NAME", "INTERVAL", "METRICS", "MATCH"],
        ["all", "500", "ms", "*", "all", "clients"],
        ["shop", "15", "s", "org.apache.kafka.consumer.,a.,b.", "client_id=shop-.*"],
    ]
    assert (await cli("client-metrics", "describe", "shop", "--json")).json == [
        {
            "subscription": "shop",
            "interval_ms": 15_000,
            "metrics": ["org.apache.kafka.consumer.", "a.", "b."],
            "match": ["client_id=shop-.*"],
        }
    ]
    assert (await cli("client-metrics", "delete", "all", "shop")).lines == ["all: deleted", "shop: deleted"]
    assert (await cli("client-metrics", "list")).lines == []
    assert (await cli("client-metrics", "describe")).lines == []


async def test_what_is_not_named_stays(cli: Cli) -> None:
    await cli("client-metrics", "set", "shop", "--metrics", "a.", "--interval", "1m")
    printed = await cli("client-metrics", "set", "shop", "--unset", "interval.ms", "--unset", "match")
    assert printed.lines == ["shop: changed: interval.ms unset", "shop: unchanged, not set: match"]
    (found,) = (await cli("client-metrics", "describe", "--json")).json
    assert (found["metrics"], found["interval_ms"]) == (["a."], 300_000)


async def test_a_subscription_without_metrics_is_told_of(cli: Cli) -> None:
    printed = await cli("client-metrics", "set", "shop", "--interval", "1s")
    assert "shop names no metrics, so that clients push nothing for it. To do: give --metrics" in printed.err


async def test_values_are_only_checked(cli: Cli) -> None:
    printed = await cli("client-metrics", "set", "shop", "--metrics", "a.", "--dry-run")
    assert printed.lines == ["shop: could be changed: metrics=a."]
    assert (await cli("client-metrics", "list")).lines == []


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("set", "shop"), 2, "there is nothing to set: give --metrics, --interval, --match or --unset"),
        (("set", "shop", "--metrics", "a.,,b."), 2, "has an empty name: write * for all metrics"),
        (("set", "shop", "--interval", "5"), 2, "'5' is not a duration: write it as 10m"),
        (
            ("set", "shop", "--interval", "50ms"),
            1,
            "client metrics 'shop': INVALID_REQUEST, Invalid value 50 for interval",
        ),
        (
            ("set", "shop", "--match", "client_ip=10.*"),
            2,
            "'client_ip' is not known of a client, did you mean client_id",
        ),
        (("set", "shop", "--match", "client_id=a,b"), 2, "has a comma"),
        (("set", "shop", "--match", "client_id=("), 1, "Illegal client matching pattern"),
        (("set", "shop", "--metrics", "a.", "--unset", "metrics"), 2, "metrics is set and unset: give one of them"),
        (("describe", "shop"), 1, "there is no subscription 'shop'. To do: barnabas client-metrics list shows them"),
        (("delete", "shop"), 1, "there is no subscription 'shop'. To do: barnabas client-metrics list shows them"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else "",
)
async def test_errors_say_what_and_why(cli: Cli, words: tuple[str, ...], status: int, said: str) -> None:
    printed = await cli("client-metrics", *words, status=status)
    assert said in printed.err
    assert (await cli("client-metrics", "list")).lines == []


async def test_what_exists_is_deleted_beside_what_does_not(cli: Cli) -> None:
    await cli("client-metrics", "set", "shop", "--metrics", "a.")
    printed = await cli("client-metrics", "delete", "shops", "shop", "--json", status=1)
    assert printed.json == [{"subscription": "shops", "deleted": False}, {"subscription": "shop", "deleted": True}]
    assert "there is no subscription 'shops', did you mean shop?" in printed.err


async def test_the_admin_client_lists_resources_by_type(cli: Cli) -> None:
    await cli("client-metrics", "set", "shop", "--metrics", "a.")
    await cli("topics", "create", "t")
    async with Admin(bootstrap_servers=cli.address) as admin:
        assert await admin.list_config_resources([ResourceType.CLIENT_METRICS]) == [
            ConfigResource.client_metrics("shop")
        ]
        found = await admin.list_config_resources([ResourceType.TOPIC])
        assert ConfigResource.topic("t") in found
        assert {one.type for one in found} == {ResourceType.TOPIC}
        assert {*found, ConfigResource.client_metrics("shop")} <= {*await admin.list_config_resources()}
