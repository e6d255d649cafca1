"""Barnabas for programs: consumer, producer and admin, for Barnabas and Apache Kafka alike.

::

    from barnabas import Consumer, Producer, Admin

:mod:`barnabas.errors` has the errors, :mod:`barnabas.testing` a broker for tests. These are the names of
:mod:`barnabas_client` and :mod:`barnabas_broker.testing` under the name of the product; the code is there. Imported by
programs only.
"""

from typing import TYPE_CHECKING

import barnabas_client
from barnabas import errors

if TYPE_CHECKING:
    from barnabas_client import *
else:

    def __getattr__(name):
        """Take a name from :mod:`barnabas_client`, which imports what it needs when a program first uses it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return globals().setdefault(name, getattr(barnabas_client, name))

    def __dir__():
        """List these names as well, for completion in a shell."""
        return sorted({*globals(), *__all__})


__all__ = ["errors"]
__all__ += barnabas_client.__all__
