"""Arguments that all commands share."""

from argparse import Namespace
from pathlib import Path
from typing import Final

from barnabas_client.cli.failures import UsageError
from barnabas_client.token_files import FileTokenProvider
from barnabas_protocol.jaas import quoted

#: Settings of secure connections, and the options of the Spark source that mean the same.
_SECURITY: Final = {
    "security_protocol": "kafka.security.protocol",
    "ssl_cafile": "kafka.ssl.truststore.location",
    "ssl_certfile": "kafka.ssl.keystore.location",
    "ssl_password": "kafka.ssl.key.password",
}


def source_options(arguments: Namespace) -> dict[str, str]:
    """Return the options of the Spark source that the brokers and ``--option`` give.

    Raises:
        UsageError: the source has no option for a setting.
    """
    servers = arguments.servers
    options = {"kafka.bootstrap.servers": servers.text}
    for name, value in servers.security.items():
        if name == "ssl_check_hostname":
            options["kafka.ssl.endpoint.identification.algorithm"] = "https" if value else ""
        elif name in _SECURITY:
            options[_SECURITY[name]] = value
        elif name == "ssl_keyfile":
            raise UsageError(f"{name} is given ({servers.source}): put the key into the file of ssl_certfile")
    login = servers.config.login
    if login is not None:
        options["kafka.sasl.mechanism"] = login.mechanism
        if isinstance(login.tokens, FileTokenProvider):
            options["kafka.sasl.oauthbearer.token.endpoint.url"] = Path(login.tokens.path).absolute().as_uri()
        else:
            options["kafka.sasl.jaas.config"] = (
                f"Login required username={quoted(login.user)} password={quoted(login.password)};"
            )
    return {**options, **dict(arguments.options)}
