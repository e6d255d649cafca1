"""One simulated world: real brokers and real clients in one event loop, in virtual time, from a seed.

How it works:

- ``loop``: an event loop whose clock jumps to the next timer when nothing is ready. Everything that runs belongs to a
  :class:`~tests.world.loop.Life`, a process that can be frozen and killed.
- ``network``: transports that behave as asyncio's over connections that delay, tear, cut and reset; a socket that
  listens, for the broker's own acceptor.
- ``disk``: files in memory that lose what was not synced, and the work of storage's threads, done in virtual time.
- ``seams``: all that broker and client take from the machine, replaced while a world runs: the clocks of :mod:`time`,
  random numbers, the bound socket, the files of the log directory, the thread of a group membership, etcd.
- ``programs``: :class:`~tests.world.programs.Simulation`, a world with machines on which the composition root
  (:mod:`barnabas_broker.broker`) starts brokers, and programs that use :mod:`barnabas`; ``@simulated`` for a test.
- ``etcd``: the model of etcd behind the network.
- ``groups``: a group of real consumers with seeded faults, and its invariants; ``python -m tests.world`` runs seeds.
- ``cluster``: three brokers with the faults of replication and the controller, among them those of ``adversary`` and
  ``damage``; ``nodes`` are its machines, ``clients`` its programs, and ``ledger`` has its invariants.

A test scripts hostile answers at the dispatcher: with ``script``, or as the public test broker does
(:mod:`barnabas_broker.testing.tap`). The same seed gives the same run. An exception that is not caught fails it with
the history: requests, their errors, and what was logged.
"""
