"""AlterReplicaLogDirs (key 34), versions 0-2, flexible from 2.

Moves replicas between the log directories of a broker (KIP-113).
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, STRING, Api, Request, Response, Struct, array, field


class AlterReplicaLogDirTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class AlterReplicaLogDir(Struct):
    path: str = field(STRING)
    topics: list[AlterReplicaLogDirTopic] = field(array(AlterReplicaLogDirTopic))


class AlterReplicaLogDirsRequest(Request, api_key=34, versions="0-2", flexible="2+"):
    dirs: list[AlterReplicaLogDir] = field(array(AlterReplicaLogDir))


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = field(STRING)
    partitions: list[AlterReplicaLogDirPartitionResult] = field(array(AlterReplicaLogDirPartitionResult))


class AlterReplicaLogDirsResponse(Response, api_key=34, versions="0-2", flexible="2+"):
    throttle_time_ms: int = field(INT32)
    results: list[AlterReplicaLogDirTopicResult] = field(array(AlterReplicaLogDirTopicResult))


API: Final = Api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse)
