"""`barnabas users`."""

import re
from pathlib import Path

import pytest

from barnabas_client import Admin, ScramMechanism, UserScramCredentialDeletion, UserScramCredentialUpsertion
from barnabas_client.errors import ErrorCode, KafkaError
from tests.client.cli.conftest import Cli


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("love lace\nsecond line\n")
    return file


async def test_a_user_is_added_listed_changed_and_removed(cli: Cli, password: Path) -> None:
    await _none(cli)
    printed = await cli("users", "add", "ada", stdin=password)
    assert printed.out == "added user ada\n"
    printed = await cli("users", "list")
    assert [line.split() for line in printed.lines] == [
        ["USER", "MECHANISM", "ITERATIONS"],
        ["ada", "SCRAM-SHA-256", "4096"],
        ["ada", "SCRAM-SHA-512", "4096"],
    ]
    printed = await cli("users", "add", "ada", "--password-file", str(password), status=1)
    assert "the user 'ada' exists. To do: use barnabas users password" in printed.err
    printed = await cli("users", "password", "ada", "--iterations", "8192", "--password-file", str(password))
    assert printed.out == "changed user ada\n"
    assert (await cli("users", "list", "ada", "--json")).json == [
        {"user": "ada", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}}
    ]
    printed = await cli("users", "remove", "ada", "--mechanism", "scram-sha-256")
    assert printed.out == "removed user ada\n"
    assert (await cli("users", "list", "--json")).json == [{"user": "ada", "mechanisms": {"SCRAM-SHA-512": 8192}}]
    printed = await cli("users", "remove", "ada", "eve", status=1)
    assert printed.out == "removed user ada\n"
    assert "the user 'eve' does not exist" in printed.err
    assert not (await cli("users", "list", "--json")).json


async def test_mistakes(cli: Cli, password: Path, tmp_path: Path) -> None:
    await _none(cli)
    empty = tmp_path / "empty"
    empty.write_text("\n")
    printed = await cli("users", "add", "ada", stdin=empty, status=1)
    assert "the password is empty: give it in --password-file FILE, or on standard input" in printed.err
    printed = await cli("users", "add", "ada", "--password-file", str(tmp_path / "none"), status=1)
    assert re.search("--password-file .*none cannot be read", printed.err)
    printed = await cli("users", "password", "ada", stdin=password, status=1)
    assert "the user 'ada' does not exist. To do: barnabas users list shows them" in printed.err
    printed = await cli("users", "list", "eve", status=1)
    assert "describe user 'eve'" in printed.err
    printed = await cli("users", "add", "ada", "--mechanism", "PLAIN", status=2)
    assert "'PLAIN' is not a mechanism: give one of SCRAM-SHA-256, SCRAM-SHA-512" in printed.err
    for number in ("4095", "16385", "many"):
        printed = await cli("users", "add", "ada", "--iterations", number, status=2)
        assert "give a number from 4096 to 16384" in printed.err
    assert not (await cli("users", "list", "--json")).json


async def test_the_password_is_asked_for_twice(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    await _none(cli)
    said = iter(["love", "lace", "love", "love"])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(said))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    printed = await cli("users", "add", "ada", status=1)
    assert "the two passwords are not the same" in printed.err
    assert (await cli("users", "add", "ada")).out == "added user ada\n"
    await cli("users", "remove", "ada")


async def test_the_admin_client(cli: Cli) -> None:
    await _none(cli)
    one = UserScramCredentialUpsertion("ada", ScramMechanism.SCRAM_SHA_256, "love lace", 5000, b"salt")
    assert "love" not in repr(one)
    async with Admin(bootstrap_servers=cli.address) as admin:
        bob = UserScramCredentialUpsertion("bob", ScramMechanism.SCRAM_SHA_512, "builder")
        assert [each.user for each in await admin.alter_user_scram_credentials([one, bob])] == ["ada", "bob"]
        found = await admin.describe_user_scram_credentials()
        assert [(each.user, each.iterations) for each in found] == [
            ("ada", {ScramMechanism.SCRAM_SHA_256: 5000}),
            ("bob", {ScramMechanism.SCRAM_SHA_512: 4096}),
        ]
        with pytest.raises(KafkaError) as refused:
            await admin.alter_user_scram_credentials([one, one])
        assert refused.value.code is ErrorCode.DUPLICATE_RESOURCE
        deletions = [UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256) for user in ("ada", "bob")]
        results = await admin.alter_user_scram_credentials(deletions, raise_errors=False)
        assert [result.error and result.error.code for result in results] == [None, ErrorCode.RESOURCE_NOT_FOUND]
        with pytest.raises(KafkaError) as refused:
            await admin.describe_user_scram_credentials(["ada"])
        assert refused.value.code is ErrorCode.RESOURCE_NOT_FOUND
        await admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512)])
    for arguments in (("", "x"), ("ada", "")):
        with pytest.raises(ValueError, match="name or password is empty"):
            UserScramCredentialUpsertion(arguments[0], ScramMechanism.SCRAM_SHA_256, arguments[1])
    with pytest.raises(ValueError, match="iterations is 4095: give a number from 4096 to 16384"):
        UserScramCredentialUpsertion("ada", ScramMechanism.SCRAM_SHA_256, "x", 4095)


async def _none(cli: Cli) -> None:
    """The brokers outlive a test, and their users with them."""
    users = [one["user"] for one in (await cli("users", "list", "--json")).json]
    if users:
        await cli("users", "remove", *users)
