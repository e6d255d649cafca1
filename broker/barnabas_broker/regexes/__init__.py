"""Regular expressions of clients: what may be used, and which names match.

:mod:`barnabas_broker.regexes.regex` compiles them, within bounds; :mod:`barnabas_broker.regexes.search` does what takes
long in threads, in fair turns (:mod:`barnabas_broker.regexes.turns`). Groups match the names of topics, and
ListTransactions transactional ids. The package imports nothing of either.
"""

from barnabas_broker.regexes.regex import InvalidRegexError, Regex
from barnabas_broker.regexes.search import RegexSearch
from barnabas_broker.regexes.turns import Client, TooSlowError

__all__ = ["Client", "InvalidRegexError", "Regex", "RegexSearch", "TooSlowError"]
