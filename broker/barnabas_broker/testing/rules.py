"""Which faults a request meets. Pure: takes the requests one after another, returns the rules that apply."""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Final

from barnabas_protocol.apis import APIS
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.registry import ApiKey

#: Means every API.
ANY: Final = "*"


class FaultType(Enum):
    """Effect of a fault."""

    DELAY = "delay"
    DROP = "drop"
    ERROR = "error"


@dataclass(slots=True)
class Rule:
    """One fault.

    Attributes:
        number: identifies it.
        type: what it does.
        api: the API of the requests; None for all.
        client_id: the client that sends them; None for all.
        nth: the first matching request that meets it, from 1 on.
        times: how many requests meet it; None for all from then on.
        seconds: the length of a delay.
        code: the code of an error.
        executed: whether the request is carried out although its response is lost or an error.
        seen: matching requests so far.
        fired: requests that have met it so far.
    """

    number: int
    type: FaultType
    api: ApiKey | None
    client_id: str | None = None
    nth: int = 1
    times: int | None = 1
    seconds: float = 0.0
    code: ErrorCode = ErrorCode.NONE
    executed: bool = False
    seen: int = 0
    fired: int = 0

    def __str__(self) -> str:
        if self.type is FaultType.DELAY:
            return f"delay {self.seconds:g} s"
        what = f"error {self.code.name}" if self.type is FaultType.ERROR else "drop"
        return f"{what} after it was carried out" if self.executed else what

    def _meets(self, api: ApiKey, client_id: str) -> bool:
        if self.api not in (None, api) or self.client_id not in (None, client_id):
            return False
        if self.times is not None and self.fired >= self.times:
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        self.fired += 1
        return True

    def take_back(self) -> None:
        """Let the next request meet it: this one has no field for the error."""
        self.fired -= 1


class Rules:
    """The faults of a broker, in the order in which they were added.

    Args:
        first: the number of the first one; another broker's faults should have other numbers.
    """

    def __init__(self, first: int = 1) -> None:
        self._rules: dict[int, Rule] = {}
        self._made: dict[int, Rule] = {}
        self._next = first

    def __getitem__(self, number: int) -> Rule:
        """A rule by its number, removed or not.

        Raises:
            ValueError: there is no such rule.
        """
        if number not in self._made:
            raise ValueError("this fault ended when its broker was stopped")
        return self._made[number]

    def add(
        self,
        kind: str,
        api: str | int,
        *,
        client_id: str | None = None,
        nth: int = 1,
        times: int | None = 1,
        seconds: float = 0.0,
        code: str | int = 0,
        executed: bool = False,
    ) -> Rule:
        """Add a rule.

        Raises:
            ValueError: an argument is wrong; the text says what is accepted.
        """
        of_type = FaultType(kind)
        if nth < 1:
            raise ValueError(f"nth={nth}: the first request is 1")
        if times is not None and times < 1:
            raise ValueError(f"times={times}: must be 1 or more, or None for all requests")
        if seconds < 0:
            raise ValueError(f"seconds={seconds}: must be 0 or more")
        error = find_code(code) if of_type is FaultType.ERROR else ErrorCode.NONE
        key = None if api == ANY else find_api(api)
        number, self._next = self._next, self._next + 1
        rule = Rule(number, of_type, key, client_id, nth, times, seconds, error, executed)
        self._rules[number] = self._made[number] = rule
        return rule

    def __iter__(self) -> Iterator[Rule]:
        return iter(list(self._rules.values()))

    def remove(self, number: int) -> Rule | None:
        """Remove a rule; None if it is removed already."""
        return self._rules.pop(number, None)

    def met_by(self, api: ApiKey, client_id: str) -> list[Rule]:
        """The rules that this request meets. Every matching rule counts it."""
        return [rule for rule in self._rules.values() if rule._meets(api, client_id)]


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


_APIS: Final = {_plain(api.name): api for api in APIS}


def find_api(api: str | int) -> ApiKey:
    """An API by its key or its name: "JoinGroup", "JOIN_GROUP" and "join_group" are the same.

    Raises:
        ValueError: there is no such API.
    """
    if isinstance(api, int):
        if api not in APIS:
            raise ValueError(f"{api}: no API has this key")
        return ApiKey(api)
    found = _APIS.get(_plain(api))
    if found is None:
        near = [_APIS[name].title for name in get_close_matches(_plain(api), _APIS, 3)]
        raise ValueError(f"{api!r}: no API has this name{_hint(near)}")
    return found


def find_code(code: str | int) -> ErrorCode:
    """An error code by its number or its name.

    Raises:
        ValueError: there is no such code, or it is NONE.
    """
    try:
        found = ErrorCode(code) if isinstance(code, int) else ErrorCode[code.upper()]
    except (KeyError, ValueError):
        near = [] if isinstance(code, int) else get_close_matches(code.upper(), ErrorCode.__members__, 3)
        raise ValueError(f"{code!r}: no such error code{_hint(near)}") from None
    if found is ErrorCode.NONE:
        raise ValueError("NONE is not an error")
    return found


def _hint(near: list[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ""
