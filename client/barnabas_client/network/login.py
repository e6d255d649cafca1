"""Logs a connection in: the SASL handshake and the messages of its mechanism (KIP-43, KIP-152, KIP-255).

Imported by the first connection that logs in.
"""

import asyncio
import math
import secrets
from collections.abc import Mapping
from functools import partial

from barnabas_client.errors import AuthenticationFailedError, KafkaConnectionError
from barnabas_client.network.connection import Connection
from barnabas_client.tokens import Login
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas_protocol.sasl import Exchange, SaslError, bearer, exchange


async def log_in(connection: Connection, login: Login, timeout: float) -> tuple[float, float]:
    """Prove to the broker who this client is.

    Args:
        connection: connected; no other request is in flight on it.
        login: how.
        timeout: seconds to wait for each response.

    Returns:
        The time of the event loop at which the session began, and the seconds after which the broker wants another
        login, infinite if it does not (KIP-368).

    Raises:
        AuthenticationFailedError: the broker does not accept it, or does not know the password itself.
        KafkaConnectionError: there is no token.
    """
    where, mechanism = f"{connection.host}:{connection.port}", login.mechanism
    # Before the handshake, because the broker does not wait long for what follows it.
    messages = await _messages(login, where)
    versions = connection.versions.get(SaslHandshakeRequest.API_KEY)
    if versions is None or versions.high < 1:  # after version 0, messages have no header
        raise AuthenticationFailedError(f"{where} has no SASL. To do: use a newer broker, or another listener of it")
    chosen = await connection.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, timeout=timeout)
    if chosen.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        served = ", ".join(chosen.mechanisms) or "none"
        raise AuthenticationFailedError(
            f"{where} does not serve the mechanism {mechanism}, only {served}. To do: give another sasl_mechanism"
        )
    if chosen.error_code != ErrorCode.NONE:
        raise AuthenticationFailedError(
            f"{where} does not take logins ({ErrorCode.of(chosen.error_code).name}). To do: connect to a listener "
            "with SASL, or without a login"
        )
    loop = asyncio.get_running_loop()
    began, lifetime = loop.time(), math.inf
    try:
        message = next(messages)
        while True:
            request, began = SaslAuthenticateRequest(auth_bytes=message), loop.time()
            answer = await connection.ask(request, SaslAuthenticateResponse, timeout=timeout)
            if answer.error_code != ErrorCode.NONE:
                reason = answer.error_message or ErrorCode.of(answer.error_code).name
                who, check = f"user {login.user!r}", "sasl_plain_username and sasl_plain_password"
                if login.tokens is not None:
                    who, check = "token", "sasl_oauth_token_provider, and what the broker expects of a token"
                raise AuthenticationFailedError(f"{where} does not accept the {who}: {reason}. To do: check {check}")
            lifetime = answer.session_lifetime_ms / 1000 or math.inf
            message = messages.send(bytes(answer.auth_bytes))
    except StopIteration:
        return began, lifetime  # the broker has accepted
    except SaslError as error:
        remedy = "the broker" if login.tokens is None else "sasl_oauth_token_provider"
        raise AuthenticationFailedError(f"the login at {where} failed: {error}. To do: check {remedy}") from error


async def _messages(login: Login, where: str) -> Exchange:
    """Create the exchange of messages of a login.

    Raises:
        KafkaConnectionError: there is no token now. It is tried again, as with a broker that does not answer.
    """
    if login.tokens is None:
        return exchange(login.mechanism, login.user, login.password, nonce=partial(secrets.token_urlsafe, 24))
    try:
        token = await login.tokens.token()
        extensions: Mapping[str, str] = getattr(login.tokens, "extensions", dict)()
        return bearer(token, extensions or {})
    except Exception as error:
        # A provider may ask another server, and fail in any way.
        raise KafkaConnectionError(
            f"no login at {where}: sasl_oauth_token_provider gives no token, {type(error).__name__}: {error}"
        ) from error
