"""Refuses arguments of constructors that do not exist, with the name that was perhaps meant."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from barnabas_protocol.suggestions import did_you_mean

F = TypeVar("F", bound=Callable[..., None])


def suggest_names(init: F) -> F:
    """Decorate a constructor: unknown keyword arguments, and a dict of settings, are errors that name the way."""
    known = [name for name, one in inspect.signature(init).parameters.items() if one.kind is one.KEYWORD_ONLY]

    @functools.wraps(init)
    def checked(self: Any, *given: Any, **named: Any) -> None:
        what = type(self).__name__
        settings = next((one for one in given if isinstance(one, Mapping)), None)
        if settings is not None:
            names = [name for name in (str(key).replace(".", "_") for key in settings) if name in known]
            arguments = ", ".join(f"{name}=..." for name in names or ["bootstrap_servers"])
            raise TypeError(f"{what}() takes settings as arguments, not as a dict. To do: {what}({arguments})")
        for name in named:
            if name not in known:
                raise TypeError(f"{what}() got an unexpected keyword argument {name!r}{did_you_mean(name, known)}")
        init(self, *given, **named)

    return cast("F", checked)
