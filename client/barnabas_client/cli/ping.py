"""`barnabas ping`: checks whether each bootstrap server answers, and measures the time of a request."""

import asyncio
import time
from argparse import ArgumentParser, Namespace
from typing import Any, Final

from barnabas_client.cli import values
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.clients import CLIENT_ID
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.failures import DONE, FAILED
from barnabas_client.cli.output import Output
from barnabas_client.cli.servers import Servers
from barnabas_client.config import Address
from barnabas_client.network.connection import Connection
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse

_PAUSE = 0.1


async def ping(arguments: Namespace, output: Output) -> int:
    """Ask every bootstrap server; while none answers, again for the time of `--wait`."""
    servers = arguments.servers.addresses
    deadline = time.monotonic() + (arguments.wait or 0)
    while True:
        found = await asyncio.gather(*(_ask(server, arguments.timeout, arguments.servers) for server in servers))
        answered = [one for one in found if not isinstance(one, KafkaError)]
        if answered or time.monotonic() >= deadline:
            break
        await asyncio.sleep(_PAUSE)
    if output.json:
        output.data([_as_data(server, one) for server, one in zip(servers, found, strict=True)])
    for (host, port), one in zip(servers, found, strict=True):
        if isinstance(one, KafkaError):
            output.error(for_command_line(one) + arguments.servers.note(one))
        elif not output.json:
            output.line(
                f"{host}:{port}: broker {one['broker']} of {one['brokers']}, cluster {one['cluster']}, "
                f"{one['apis']} APIs, {one['milliseconds']} ms"
            )
    return DONE if len(answered) == len(servers) else FAILED


async def _ask(server: Address, timeout: float, servers: Servers) -> dict[str, Any] | KafkaError:
    """Ask a server about the cluster, and measure the time of one request on an open connection."""
    host, port = server
    config = servers.config
    try:
        connection = await Connection.open(
            host, port, client_id=CLIENT_ID, timeout=timeout, tls=config.tls, login=config.login
        )
    except KafkaError as error:
        return error
    try:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        await connection.ask(request, MetadataResponse, timeout=timeout)  # compiles the message
        start = time.perf_counter()
        response = await connection.ask(request, MetadataResponse, timeout=timeout)
        took = time.perf_counter() - start
    except KafkaError as error:
        return error
    finally:
        await connection.close()
    here = [one.node_id for one in response.brokers if one.port == port]
    return {
        "broker": here[0] if len(here) == 1 else None,
        "brokers": len(response.brokers),
        "cluster": response.cluster_id,
        "controller": response.controller_id,
        "apis": len(connection.versions),
        "milliseconds": round(took * 1000, 2),
    }


def _as_data(server: Address, found: dict[str, Any] | KafkaError) -> dict[str, Any]:
    address = {"address": f"{server[0]}:{server[1]}"}
    return (
        {**address, "error": for_command_line(found)}
        if isinstance(found, KafkaError)
        else {**address, "error": None, **found}
    )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        type=checked(values.seconds),
        metavar="TIME",
        help="try again until a broker answers, for at most this time",
    )


COMMAND: Final = Command(
    path=("ping",), help="check whether brokers answer, and how fast", add_arguments=_arguments, run=ping
)
