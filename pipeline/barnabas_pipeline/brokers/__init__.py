"""Brokers for code that is not async: Spark's driver and its Python workers.

Every other package of :mod:`barnabas_pipeline` may import this one; it imports the client. `settings` has the
``kafka.*`` options (:class:`~settings.Settings`), `remote` the connections that they lead to
(:func:`~remote.remote_for`).
"""
