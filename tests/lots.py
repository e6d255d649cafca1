"""Short cases of a test in lots: collecting, scheduling and reporting a test takes longer than most of them do."""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any

import pytest

Test = Callable[..., None]


def in_lots(names: str | tuple[str, ...], cases: Iterable[Any], size: int = 25) -> Callable[[Test], Test]:
    """Parametrize a test, as :func:`pytest.mark.parametrize` does, with `size` cases in each run of it.

    The first case that fails ends its lot, and the failure names it.

    Args:
        names: of the arguments.
        cases: a value, or a tuple of values, for each case.
        size: of a lot.
    """
    cases = list(cases)
    lots = {f"from {at}": cases[at : at + size] for at in range(0, len(cases), size)}
    names = (names,) if isinstance(names, str) else names
    first = names[0]

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(**given: Any) -> None:
            for case in given.pop(first):
                values = dict(zip(names, case if len(names) > 1 else (case,), strict=True))
                try:
                    test(**values, **given)
                except BaseException as error:
                    error.add_note(f"in the case {values}")
                    raise

        whole = signature(test)
        others = [each for name, each in whole.parameters.items() if name == first or name not in names]
        vars(run)["__signature__"] = whole.replace(parameters=others)
        marked: Test = pytest.mark.parametrize(first, lots.values(), ids=lots)(run)
        return marked

    return decorate
