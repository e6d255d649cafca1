"""What the cluster consists of: an immutable image, the events that change it, who decides them and where they are
kept."""


class ClusterError(Exception):
    """The cluster cannot be joined, read or changed; the text says why."""
