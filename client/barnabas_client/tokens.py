"""How a client logs in, and where the tokens of OAUTHBEARER come from.

The names and the interface are aiokafka's: a provider that was written for it works here.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple, Protocol


class TokenProvider(Protocol):
    """Source of tokens; :class:`AbstractTokenProvider` is one."""

    async def token(self) -> str: ...


class AbstractTokenProvider(ABC):
    """Gives the tokens by which a client logs in: ``sasl_oauth_token_provider`` of the clients.

    Each connection asks for a token when it is opened, and again before the session of the one before ends. So keep a
    token as long as it is valid for some minutes, and get the next one in good time.
    """

    @abstractmethod
    async def token(self) -> str:
        """Return a token that is valid."""

    def extensions(self) -> Mapping[str, str]:
        """Return what the client sends beside the token, by name: letters only. Default: nothing."""
        return {}


class Login(NamedTuple):
    """How a client logs in.

    Attributes:
        mechanism: of SASL.
        user: who it is; "" with OAUTHBEARER, whose token says so.
        password: the user's; "" likewise.
        tokens: what gives tokens; None without OAUTHBEARER.
    """

    mechanism: str
    user: str = ""
    password: str = ""
    tokens: TokenProvider | None = None

    def __repr__(self) -> str:
        return f"Login({self.mechanism!r}, {self.user!r})"
