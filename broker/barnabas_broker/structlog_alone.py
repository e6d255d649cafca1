"""Imports structlog without rich, if the program has imported neither.

structlog takes rich for tracebacks in colour where it is installed. The broker writes plain ones, and rich would cost a
seventh of its start and 4 MiB. Only the `broker` command imports this module, before all others: a program that runs a
broker in its process may want rich.
"""

import sys

if sys.modules.keys().isdisjoint(("rich", "structlog")):
    sys.modules["rich"] = None  # type: ignore[assignment]  # ImportError, as where it is not installed
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules["rich"]
