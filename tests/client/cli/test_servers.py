"""Where a command finds its brokers."""

from pathlib import Path
from typing import Any

import pytest

from barnabas_client.cli import main
from barnabas_client.cli.failures import CommandError, UsageError
from barnabas_client.cli.servers import config_file, find_servers
from barnabas_protocol.errors import ErrorCode, KafkaError

FILE = """
default = "laptop"

[clusters.laptop]
bootstrap_servers = "laptop:1"

[clusters.production]
bootstrap_servers = ["one:1", "two:2"]
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "barnabas").mkdir()
    (tmp_path / "barnabas" / "config.toml").write_text(FILE)
    return tmp_path


def found(bootstrap: str | None = None, cluster: str | None = None, **environment: object) -> tuple[str, str]:
    servers = find_servers(bootstrap, cluster, {name: str(value) for name, value in environment.items()})
    return servers.text, servers.source


def test_the_order_is_options_environment_file_default(home: Path) -> None:
    file = home / "barnabas" / "config.toml"
    both: dict[str, Any] = {
        "BARNABAS_BOOTSTRAP_SERVERS": "env:1",
        "BARNABAS_CLUSTER": "production",
        "XDG_CONFIG_HOME": home,
    }
    assert found("option:1", **both) == ("option:1", "from --bootstrap-servers")
    assert found(None, "production", **both) == ("one:1,two:2", f"cluster 'production' of {file}, named by --cluster")
    assert found(**both) == ("env:1", "from $BARNABAS_BOOTSTRAP_SERVERS")
    del both["BARNABAS_BOOTSTRAP_SERVERS"]
    assert found(**both) == ("one:1,two:2", f"cluster 'production' of {file}, named by $BARNABAS_CLUSTER")
    assert found(XDG_CONFIG_HOME=home) == ("laptop:1", f"cluster 'laptop' of {file}, named by the default of {file}")
    assert found(XDG_CONFIG_HOME=home / "none")[0] == "localhost:9092"
    assert found(XDG_CONFIG_HOME=home, BARNABAS_BOOTSTRAP_SERVERS="", BARNABAS_CLUSTER="")[0] == "laptop:1"


def test_the_file_is_in_the_users_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    default = tmp_path / ".config" / "barnabas" / "config.toml"
    assert config_file({}) == default
    assert config_file({"XDG_CONFIG_HOME": "relative"}) == default


def test_both_options_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--bootstrap-servers and --cluster exclude each other"):
        found("a:1", "b")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("x", "is not valid TOML: "),
        ("defualt = 'a'", "unknown key defualt, did you mean default?"),
        ("default = 1", "default is not a string: give the name of a cluster"),
        ("clusters = 1", "clusters is not a table"),
        ("[clusters.x]", r'\[clusters.x\] needs bootstrap_servers = "host:port"'),
        ("[clusters.x]\nbootstrap = 'a'", "unknown key clusters.x.bootstrap, did you mean bootstrap_servers?"),
        ("[clusters.x]\nbootstrap_servers = 1", 'give "host:port" or a list of such strings'),
        ("[clusters.x]\nbootstrap_servers = [1]", 'give "host:port" or a list of such strings'),
        ("", "--cluster names the cluster 'x', but it is not in .*config.toml, which has none. To do: add "),
        ("[clusters.xy]\nbootstrap_servers = 'a'", "which has xy, did you mean xy?"),
    ],
)
def test_a_file_that_is_not_valid(home: Path, content: str, why: str) -> None:
    (home / "barnabas" / "config.toml").write_text(content)
    with pytest.raises(CommandError, match=why):
        found(None, "x", XDG_CONFIG_HOME=home)


def test_an_invalid_address_is_reported_with_its_place(home: Path) -> None:
    with pytest.raises(UsageError, match=r"^\$BARNABAS_BOOTSTRAP_SERVERS has 'h:x': give "):
        found(BARNABAS_BOOTSTRAP_SERVERS="h:x")
    (home / "barnabas" / "config.toml").write_text("[clusters.x]\nbootstrap_servers = []")
    with pytest.raises(UsageError, match=r"config.toml: clusters.x.bootstrap_servers is empty: give "):
        found(None, "x", XDG_CONFIG_HOME=home)


@pytest.mark.parametrize("words", [["topics", "list"], ["ping"], ["groups", "watch", "g"], ["produce", "t"]])
def test_an_error_says_where_the_address_came_from(
    words: list[str], home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "barnabas" / "config.toml").write_text("[clusters.far]\nbootstrap_servers = '127.0.0.1:1'")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home))
    monkeypatch.setenv("BARNABAS_CLUSTER", "far")
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVERS", raising=False)
    assert main(words) == 1
    err = capsys.readouterr().err
    assert "Connection refused. To do: check that a broker listens there (127.0.0.1:1 is cluster 'far' of " in err
    assert err.endswith("config.toml, named by $BARNABAS_CLUSTER)\n")


# Secure connections


def security(cluster: str | None = None, **environment: object) -> dict[str, Any]:
    given = {name: str(value) for name, value in environment.items()}
    return dict(find_servers(None, cluster, given).security)


def test_a_cluster_of_the_file_has_its_own_settings(home: Path) -> None:
    (home / "barnabas" / "config.toml").write_text(
        "[clusters.far]\nbootstrap_servers = 'far:1'\nsecurity_protocol = 'SSL'\nssl_cafile = '/ca.pem'\n"
        "ssl_check_hostname = false"
    )
    secret: dict[str, Any] = {
        "BARNABAS_SECURITY_PROTOCOL": "SSL",
        "BARNABAS_SSL_PASSWORD": "hush",
        "XDG_CONFIG_HOME": home,
    }
    assert security("far", **secret) == {
        "security_protocol": "SSL",
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
    }
    assert security(**secret) == {"security_protocol": "SSL", "ssl_password": "hush"}
    assert security(XDG_CONFIG_HOME=home) == {}
    assert security(BARNABAS_SSL_CHECK_HOSTNAME="False", XDG_CONFIG_HOME=home) == {"ssl_check_hostname": False}
    with pytest.raises(UsageError, match=r"\$BARNABAS_SSL_CHECK_HOSTNAME is 'no': give true or false"):
        security(BARNABAS_SSL_CHECK_HOSTNAME="no")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("ssl_cafile = 1", "clusters.x.ssl_cafile: give a string"),
        ("ssl_check_hostname = 'no'", "clusters.x.ssl_check_hostname: give true or false"),
    ],
)
def test_a_setting_of_another_type_is_refused(home: Path, lines: str, why: str) -> None:
    (home / "barnabas" / "config.toml").write_text(f"[clusters.x]\nbootstrap_servers = 'h:1'\n{lines}")
    with pytest.raises(CommandError, match=why):
        security("x", XDG_CONFIG_HOME=home)


def test_a_file_that_cannot_be_used_is_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "none"))
    monkeypatch.setenv("BARNABAS_SECURITY_PROTOCOL", "SSL")
    monkeypatch.setenv("BARNABAS_SSL_CAFILE", "/no/file")
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVERS", "far:1")
    assert main(["ping"]) == 1
    assert capsys.readouterr().err == (
        "barnabas: ssl_cafile is '/no/file', which cannot be used (No such file or directory): give a PEM file "
        "(far:1 is from $BARNABAS_BOOTSTRAP_SERVERS)\n"
    )


def test_an_authorization_error_names_the_principal() -> None:
    refused, other = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED), KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    login = {"BARNABAS_SASL_MECHANISM": "PLAIN", "BARNABAS_SASL_PLAIN_USERNAME": "bob"}
    login |= {"BARNABAS_SECURITY_PROTOCOL": "SASL_SSL", "BARNABAS_SASL_PLAIN_PASSWORD": "x"}
    assert find_servers("here:1", None, login).note(refused) == " (this client is User:bob)"
    anonymous = " (this client has not logged in: it is User:ANONYMOUS)"
    assert find_servers("here:1", None, {}).note(refused) == anonymous
    assert find_servers("here:1", None, {"BARNABAS_SECURITY_PROTOCOL": "SSL"}).note(refused) == ""
    assert find_servers("here:1", None, login).note(other) == ""
