"""The process that runs the etcd of a test's cluster. It ends it at the end of stdin, and when its parent has ended.

Arguments: the parent's process id, and the command line of etcd.
"""

import os
import select
import signal
import subprocess
import sys
from typing import Final

from barnabas_broker.local_etcd import end_with_parent

#: Seconds between two checks whether the parent and etcd run.
_WATCH_SECONDS: Final = 0.5
#: Seconds that etcd may take to stop before it is killed.
_STOP_SECONDS: Final = 5.0


def main() -> None:
    """Run etcd; the exit status is etcd's if it ends by itself."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    etcd = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=end_with_parent)
    try:
        while etcd.poll() is None and os.getppid() == parent:
            if select.select([0], [], [], _WATCH_SECONDS)[0]:
                return  # the end of stdin: nothing is written to it
    finally:
        etcd.terminate()
        try:
            etcd.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            etcd.kill()
            etcd.wait()
    sys.exit(etcd.returncode)


if __name__ == "__main__":
    main()
