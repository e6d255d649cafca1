"""The decisions of the controller. Pure: an image and a request in, events or the error to answer out.

Kafka's ``ReplicationControlManager``, ``ClusterControlManager`` and ``ConfigurationControlManager`` decide the same
with the same errors. `topics` creates, grows, configures and deletes topics; `leaders` elects leaders when brokers
register or are fenced; `isr` accepts ISRs that leaders propose; `withdrawal` lets replicas leave them;
`reassignment` moves replicas; `users` changes the credentials of SCRAM; `acls` creates and deletes ACLs (Kafka's
``AclControlManager``); `quotas` changes quotas (``ClientQuotaControlManager``).
"""

from barnabas_broker.cluster.controller.acls import create_acls, delete_acls
from barnabas_broker.cluster.controller.isr import IsrChange, alter_isr
from barnabas_broker.cluster.controller.leaders import (
    ElectionType,
    LeaderRecovery,
    LogEnd,
    MinIsrRule,
    UncleanRule,
    broker_fenced,
    elect_leaders,
    hand_over,
    prefer_leaders,
    reconcile,
    recover,
    recovering,
    recovery_of,
    report_log_ends,
)
from barnabas_broker.cluster.controller.quotas import QuotaAlteration, alter_quotas
from barnabas_broker.cluster.controller.reassignment import is_reassigning, reassign
from barnabas_broker.cluster.controller.topics import (
    MAX_PARTITIONS,
    TopicNames,
    add_partitions,
    allocate_producer_ids,
    check_topic_name,
    configure_topic,
    create_topic,
    delete_topic,
)
from barnabas_broker.cluster.controller.users import Deletion, Upsertion, add_users, alter_users
from barnabas_broker.cluster.controller.withdrawal import Withdrawal, withdraw

__all__ = [
    "MAX_PARTITIONS",
    "Deletion",
    "ElectionType",
    "IsrChange",
    "LogEnd",
    "MinIsrRule",
    "QuotaAlteration",
    "LeaderRecovery",
    "TopicNames",
    "UncleanRule",
    "Upsertion",
    "Withdrawal",
    "add_partitions",
    "add_users",
    "allocate_producer_ids",
    "alter_isr",
    "alter_quotas",
    "alter_users",
    "broker_fenced",
    "check_topic_name",
    "configure_topic",
    "create_acls",
    "create_topic",
    "delete_acls",
    "delete_topic",
    "elect_leaders",
    "hand_over",
    "is_reassigning",
    "prefer_leaders",
    "reassign",
    "reconcile",
    "recover",
    "recovering",
    "recovery_of",
    "report_log_ends",
    "withdraw",
]
