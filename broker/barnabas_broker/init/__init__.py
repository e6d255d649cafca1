"""The contents of a broker at its start, declared in one file: topics, users, ACLs, quotas, records, groups' offsets.

Imported by the programs and by the broker for tests; imports the broker. Nothing of the broker imports it.

- :mod:`~.document`: reads the file (YAML), and finds everything that is wrong with its text; no broker is needed
- :mod:`~.seeds`: the records of a topic: lines of JSON, rows of CSV, or in the file itself
- :mod:`~.apply`: brings a running broker to what is declared, and says what it has done
"""

from barnabas_broker.init.apply import apply
from barnabas_broker.init.document import Declared, InitError, read

__all__ = ["Declared", "InitError", "apply", "read"]
