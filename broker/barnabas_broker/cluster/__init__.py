"""The cluster's metadata: brokers, topics, configurations; its changes and its storage.

Imported by replication, the handlers, the HTTP endpoint and the composition root; imports only config, quotas and
security. Handlers read :attr:`.ClusterMetadata.image` and change it with :meth:`.ClusterMetadata.change`; nothing else
writes to a store.

* :mod:`~.image` (pure): the immutable image, and the events that make a new one; :mod:`~.image_diff` (pure);
  :mod:`~.users` (pure): the users of SCRAM in it; :mod:`~.acls` (pure): the ACLs in it; :mod:`~.quotas` (pure): the
  quotas in it.
* :mod:`~.controller` (pure) decides: an image and a request in, events or an error out.
* :mod:`~.metadata`: the current image, and the one way to change it.
* :mod:`~.store`: the port of metadata stores. Its adapters are :mod:`~.local`, a journal for a single broker, and
  :mod:`~.etcd_store`, which several brokers share. :mod:`~.event_json` is the stored form of an event.
* :mod:`~.kv`: the port onto etcd. Its adapter is :mod:`~.etcd`, imported only for a cluster.
* :mod:`~.lifecycle`: this broker's registration and its lease, with :mod:`~.registration` and :mod:`~.lease_fence`;
  :mod:`~.controller_runner` stands for election and applies the controller's decisions.
* :mod:`~.member` puts these together for a broker of a cluster.
"""


class ClusterError(Exception):
    """The cluster cannot be joined, read or changed; the text says why."""
