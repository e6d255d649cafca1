"""The past of groups and transactions, as the brokers have recorded it. It only reads.

:mod:`.sources` says where the events of a group come from. The command line, the console and :mod:`barnabas.explain`
read here.
"""
