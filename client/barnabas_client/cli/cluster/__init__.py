"""`barnabas cluster`: the state of a cluster, and changes to the replicas and leaders of its partitions.

:mod:`placement` plans where replicas should be (pure), :mod:`plan_file` reads and writes plans, :mod:`state` looks at
the cluster, :mod:`status`, :mod:`moves` and :mod:`elections` are the commands. All go through the Kafka protocol, so
that they work against Apache Kafka, too.
"""
