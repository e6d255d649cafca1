"""Settings, and functions that take them as keyword arguments: each is stated in its class of settings only.

Arguments that do not exist are refused with the name that was perhaps meant.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform

from barnabas_protocol.suggestions import did_you_mean

F = TypeVar("F", bound=Callable[..., Any])


@dataclass_transform(kw_only_default=True)
class Settings:
    """Settings as attributes, from keyword arguments; class attributes are the defaults.

    A dataclass would generate code for each class, half a millisecond of every import.
    """

    #: Names and types, in the order of their declaration.
    TYPES: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        cls.TYPES = cls.TYPES | cls.__annotations__

    def __init__(self, **given: Any) -> None:
        for name in given:
            if name not in self.TYPES:
                raise TypeError(f"{type(self).__name__} has no setting {name!r}")
        vars(self).update(given)
        for name in self.TYPES:
            if not hasattr(self, name):
                raise TypeError(f"{type(self).__name__} needs {name}")
        self.check()

    def check(self) -> None:
        """Raise a `TypeError` or a `ValueError` for the first setting that is wrong."""


def takes(*configs: type[Settings]) -> Callable[[F], F]:
    """Decorate a function whose ``**settings`` are those of `configs`: its signature, which `help` shows and shells
    complete, has them one by one.

    A dict in place of arguments is an error that names the way, and so are unknown arguments.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        parameters = {name: one for name, one in signature.parameters.items() if one.kind is not Parameter.VAR_KEYWORD}
        for config in configs:
            for name, annotation in config.TYPES.items():
                if name not in parameters and hasattr(config, name):
                    default = getattr(config, name)
                    parameters[name] = Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

        def check(given: tuple[object, ...], named: Mapping[str, object]) -> None:
            dicts = [one for one in given if isinstance(one, Mapping)]
            if dicts:
                known = [name for name, one in parameters.items() if one.kind is Parameter.KEYWORD_ONLY]
                names = [name for name in (str(key).replace(".", "_") for key in dicts[0]) if name in known]
                arguments = ", ".join(f"{name}=..." for name in names or known[:1])
                call = _name(function)
                raise TypeError(f"{call}() takes settings as arguments, not as a dict. To do: {call}({arguments})")
            if not parameters.keys() >= named.keys():
                raise unknown_argument(made, named)

        @functools.wraps(function)
        def checked(self: object, *given: object, **named: object) -> Any:
            check(given, named)
            return function(self, *given, **named)

        @functools.wraps(function)
        async def checked_coroutine(self: object, *given: object, **named: object) -> Any:
            check(given, named)
            return await function(self, *given, **named)

        made: Any = checked_coroutine if inspect.iscoroutinefunction(function) else checked
        made.__signature__ = signature.replace(parameters=list(parameters.values()))
        made.__annotations__ = {name: one.annotation for name, one in parameters.items()}
        made.__annotations__["return"] = signature.return_annotation
        return cast("F", made)

    return decorate


def taken(config: type[Settings], settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of `config` among `settings`, which are removed from `settings`."""
    return {name: settings.pop(name) for name in config.TYPES if name in settings}


def unknown_argument(function: Callable[..., object], named: Iterable[str]) -> TypeError:
    """The error of a call whose arguments `named` are not all parameters of `function`: Python's own words, and
    the name that was perhaps meant, which Python adds from version 3.13 on."""
    variable = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    known = [name for name, one in inspect.signature(function).parameters.items() if one.kind not in variable]
    name = next(name for name in named if name not in known)
    meant = did_you_mean(name, (one for one in known if one != "self"))
    return TypeError(f"{_name(function)}() got an unexpected keyword argument {name!r}{meant}")


def _name(function: Callable[..., object]) -> str:
    return function.__qualname__.removesuffix(".__init__")
