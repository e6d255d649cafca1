"""DescribeLogDirs (key 35), versions 0-5, flexible from 2.

Returns the size of each replica in each log directory. Version 5 says whether a directory is cordoned (KIP-1066).
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Api, Request, Response, Struct, array, field


class DescribableLogDirTopic(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class DescribeLogDirsRequest(Request, api_key=35, versions="0-5", flexible="2+"):
    topics: list[DescribableLogDirTopic] | None = field(array(DescribableLogDirTopic), nullable="0+")


class DescribeLogDirsPartition(Struct):
    partition_index: int = field(INT32)
    partition_size: int = field(INT64)
    offset_lag: int = field(INT64)
    is_future_key: bool = field(BOOLEAN)


class DescribeLogDirsTopic(Struct):
    name: str = field(STRING)
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition))


class DescribeLogDirsResult(Struct):
    error_code: int = field(INT16)
    log_dir: str = field(STRING)
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic))
    total_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = field(BOOLEAN, "5+", default=False, ignorable=True)


class DescribeLogDirsResponse(Response, api_key=35, versions="0-5", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, "3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult))


API: Final = Api(DescribeLogDirsRequest, DescribeLogDirsResponse)
