"""The errors of the client: those of :mod:`barnabas_client.errors`."""

import barnabas_client.errors
from barnabas_client.errors import *

__all__: list[str] = []
__all__ += barnabas_client.errors.__all__
