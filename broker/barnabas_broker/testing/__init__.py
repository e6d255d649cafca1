"""A real broker for tests, started from Python. With pytest, the fixtures of :mod:`barnabas_broker.pytest_plugin` are
shorter still.

    from barnabas_broker.testing import Broker

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

Imported by users' tests, and by nothing of the broker but the plugin. Importing it does not import the broker: the
process, or the thread, that runs it does.
"""

from barnabas_broker.errors import BrokerError
from barnabas_broker.testing.broker import Broker
from barnabas_broker.testing.cluster import Cluster
from barnabas_broker.testing.faults import Fault, Faults
from barnabas_broker.testing.records import StoredRecord
from barnabas_broker.testing.requests import SeenRequest

__all__ = ["Broker", "BrokerError", "Cluster", "Fault", "Faults", "SeenRequest", "StoredRecord"]
