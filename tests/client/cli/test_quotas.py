"""`barnabas quotas`, and quotas through the admin client."""

import asyncio

import pytest

from barnabas_client import Admin, ClientQuotaAlteration
from barnabas_client.errors import ErrorCode, KafkaError
from tests.client.cli.conftest import PATIENCE, Cli


async def _none(cli: Cli) -> None:
    """The brokers outlive a test, and their quotas with them."""
    async with Admin(bootstrap_servers=cli.address) as admin:
        found = await admin.describe_client_quotas()
        await admin.alter_client_quotas([ClientQuotaAlteration(one.entity, dict.fromkeys(one.values)) for one in found])
        await _described(admin, 0)


async def _described(admin: Admin, quotas: int) -> None:
    """Wait until there are so many quotas: the brokers of Apache Kafka learn of a change after it was answered."""
    async with asyncio.timeout(PATIENCE):
        while True:
            if sum(len(one.values) for one in await admin.describe_client_quotas()) == quotas:
                return
            await asyncio.sleep(0.05)


async def _listed(cli: Cli, quotas: int) -> None:
    async with Admin(bootstrap_servers=cli.address) as admin:
        await _described(admin, quotas)


async def test_quotas_are_set_listed_and_removed(cli: Cli) -> None:
    await _none(cli)
    printed = await cli("quotas", "set", "--user", "ada", "producer_byte_rate=1048576", "request_percentage=12.5")
    assert printed.out == "quotas set for user 'ada'\n"
    await cli("quotas", "set", "--default-user", "--client-id", "app", "consumer_byte_rate=1e6")
    await cli("quotas", "set", "--ip", "10.0.0.1", "connection_creation_rate=5")
    await _listed(cli, 4)
    printed = await cli("quotas", "list")
    assert [line.split() for line in printed.lines] == [
        ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"],
        ["<default>", "app", "-", "consumer_byte_rate", "1000000"],
        ["-", "-", "10.0.0.1", "connection_creation_rate", "5"],
        ["ada", "-", "-", "producer_byte_rate", "1048576"],
        ["ada", "-", "-", "request_percentage", "12.5"],
    ]
    assert (await cli("quotas", "list", "--default-user", "--json")).json == [
        {"entity": {"client-id": "app", "user": None}, "quotas": {"consumer_byte_rate": 1000000}}
    ]
    printed = await cli("quotas", "remove", "--user", "ada", "request_percentage")
    assert printed.out == "quotas removed for user 'ada'\n"
    await _listed(cli, 3)
    assert (await cli("quotas", "list", "--user", "ada", "--json")).json[0]["quotas"] == {"producer_byte_rate": 1048576}
    await cli("quotas", "remove", "--user", "ada")
    await _listed(cli, 2)
    printed = await cli("quotas", "remove", "--user", "ada", status=1)
    assert "there is no quota for user 'ada'. To do: barnabas quotas list shows them" in printed.err
    await _none(cli)


async def test_values_are_only_checked(cli: Cli) -> None:
    await _none(cli)
    printed = await cli("quotas", "set", "--dry-run", "--user", "ada", "producer_byte_rate=5")
    assert printed.out == "quotas valid for user 'ada'\n"
    assert not (await cli("quotas", "list", "--json")).json
    printed = await cli("quotas", "set", "--dry-run", "--user", "ada", "producer_byte_rate=1.5", status=1)
    assert "producer_byte_rate cannot be a fractional value" in printed.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("set", "producer_byte_rate=5"), "it is not said for what: give --user, --client-id or --ip"),
        (("set", "--user", "a", "--default-user", "producer_byte_rate=5"), "give one of them"),
        (("set", "--user", "a", "producer_byte_rate"), "write it as KEY=NUMBER"),
        (("set", "--user", "a", "producer_byte_rate=0"), "must be a number above 0"),
        (("set", "--user", "a", "producer_byte_rate=nan"), "must be a number above 0"),
        (("set", "--user", "a", "producer_byte_rat=5"), "did you mean producer_byte_rate?"),
        (("remove", "--user", "a", "nothing"), "'nothing' is not a quota: give one of producer_byte_rate"),
    ],
)
async def test_mistakes(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    printed = await cli("quotas", *arguments, status=2)
    assert said in printed.err


async def test_quotas_through_the_admin_client(cli: Cli) -> None:
    await _none(cli)
    async with Admin(bootstrap_servers=cli.address) as admin:
        user = ClientQuotaAlteration({"user": "ada"}, {"producer_byte_rate": 5, "request_percentage": 12.5})
        both = ClientQuotaAlteration({"user": "ada", "client-id": None}, {"consumer_byte_rate": 7})
        results = await admin.alter_client_quotas([user, both])
        assert [result.error for result in results] == [None, None]
        await _described(admin, 3)
        assert len(await admin.describe_client_quotas({"user": "ada"})) == 2
        (one,) = await admin.describe_client_quotas({"user": "ada"}, strict=True)
        assert one.values == {"producer_byte_rate": 5, "request_percentage": 12.5}
        (one,) = await admin.describe_client_quotas(any_of=["client-id"])
        assert (one.entity, one.values) == ({"user": "ada", "client-id": None}, {"consumer_byte_rate": 7})
        with pytest.raises(KafkaError) as refused:
            await admin.alter_client_quotas([ClientQuotaAlteration({"user": "ada"}, {"nothing": 7})])
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        with pytest.raises(KafkaError) as refused:
            await admin.describe_client_quotas({"ip": None}, any_of=["user"])
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    for entity in ({}, {"group": "g"}):
        with pytest.raises(ValueError, match="give names for user, client-id, ip"):
            ClientQuotaAlteration(entity, {})
    await _none(cli)
