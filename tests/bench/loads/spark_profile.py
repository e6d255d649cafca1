"""Profile of the source in a Python worker, without Spark: processor seconds for a million rows.

python -m tests.bench.loads.spark_profile ADDRESS TOPIC

The topic is read three times after a warm-up; the fastest run is printed. A profiler would make the loop over records
look four times slower, so each step is timed as a whole; generators are not, their time is in `thread` only. `thread`
is the time that a task waits for; `process` includes the receiving thread.
"""

import functools
import json
import sys
import time
from collections import defaultdict
from typing import Any, Final

from barnabas_client import columns
from barnabas_pipeline.source import reader
from barnabas_pipeline.source.options import ReadOptions

STEPS: Final = (
    (reader, "cut"),
    (reader, "to_arrow"),
    (columns, "check_crc"),
    (columns, "_records"),
    (columns, "_one_by_one"),
    (columns, "_varints"),
    (columns, "_pick"),
)


def main(address: str, topic: str) -> None:
    taken: defaultdict[str, float] = defaultdict(float)

    def timed(module: Any, name: str) -> None:
        step = getattr(module, name)

        @functools.wraps(step)
        def stopwatch(*args: Any, **named: Any) -> Any:
            began = time.thread_time()
            result = step(*args, **named)
            taken[name] += time.thread_time() - began
            return result

        setattr(module, name, stopwatch)

    for module, name in STEPS:
        timed(module, name)
    options = ReadOptions.of({"kafka.bootstrap.servers": address, "subscribe": topic}, streaming=False)
    found: list[dict[str, float]] = []
    for _ in range(4):
        taken.clear()
        began = time.process_time(), time.thread_time()
        source = reader.BatchReader(options)
        rows = sum(batch.num_rows for part in source.partitions() for batch in source.read(part))
        whole = {"process": time.process_time() - began[0], "thread": time.thread_time() - began[1], **taken}
        found.append({name: round(seconds * 1e6 / rows, 3) for name, seconds in whole.items()})
    print(json.dumps(min(found[1:], key=lambda one: one["process"])))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
