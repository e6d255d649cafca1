"""A real broker for tests: that of :mod:`barnabas_broker.testing`.

::

    from barnabas.testing import Broker

    with Broker() as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)

With pytest, the fixtures of :mod:`barnabas_broker.pytest_plugin` are shorter still.
"""

from barnabas_broker.testing import Broker, BrokerError, Cluster, Fault, Faults, SeenRequest, StoredRecord

__all__ = ["Broker", "BrokerError", "Cluster", "Fault", "Faults", "SeenRequest", "StoredRecord"]
