"""The image of a broker: its size, what it holds, its user, and its health check."""

import json
from typing import Final

import pytest

from tests.compose.stack import IMAGE, Stack

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

MIB: Final = 1 << 20

# Runs inside a container: the health check of docker-compose.yml beside servers that answer with a status, or do not
# answer; then its processor time, and that of a Python that does the same.
_CHECK_BESIDE_SERVERS: Final = """
import http.server, json, resource, socket, subprocess, sys, threading

check = json.loads(sys.argv[1])
python = [sys.executable, "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9308/readyz')"]

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(status if self.path == "/readyz" else 404)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass

def passes():
    try:
        return subprocess.run(check, timeout=5, stderr=subprocess.DEVNULL).returncode == 0
    except subprocess.TimeoutExpired:
        return False

def cost(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(10):
        subprocess.run(command, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

results = {"no server": passes()}
with socket.create_server(("127.0.0.1", 9308)):
    results["silent server"] = passes()
with http.server.ThreadingHTTPServer(("127.0.0.1", 9308), Answer) as server:
    threading.Thread(target=server.serve_forever).start()
    for status in (404, 503, 500, 200):
        results[str(status)] = passes()
    results["cost"] = cost(check) / cost(python)
    server.shutdown()
print(json.dumps(results))
"""


def test_image_is_small(image: Stack) -> None:
    base = image.inspect_image(image.base)
    ours = image.inspect_image(IMAGE)
    assert ours["RootFS"]["Layers"][: len(base["RootFS"]["Layers"])] == base["RootFS"]["Layers"]
    added = (ours["Size"] - base["Size"]) / MIB
    print(f"the image adds {added:.0f} MiB to its base of {base['Size'] / MIB:.0f} MiB")
    assert added < 120


def test_image_holds_no_build_tools_and_no_sources_of_extensions(image: Stack) -> None:
    venv = image.run_in_image(IMAGE, "sh", "-c", "ls /opt/barnabas/lib/python3*/site-packages").split()
    assert "barnabas_broker" in venv
    assert not {"pip", "setuptools", "wheel", "hatchling"} & set(venv)
    found = image.run_in_image(
        IMAGE,
        "sh",
        "-c",
        r"find /opt /src /root/.cache /home -name '*.pyx' -o -name '*.[ch]' -o -name '*.whl' 2>&1 || true",
    )
    assert [line for line in found.splitlines() if "No such file" not in line and "denied" not in line] == []


def test_broker_is_not_root(image: Stack) -> None:
    assert image.inspect_image(IMAGE)["Config"]["User"] == "1001"
    assert image.run_in_image(IMAGE, "id", "-u").strip() == "1001"


def test_health_check_passes_only_if_the_broker_is_ready_and_costs_little(stack: Stack) -> None:
    check = stack.inspect("broker1")["Config"]["Healthcheck"]["Test"]
    assert check[0] == "CMD"
    results = json.loads(stack.run_in_image(IMAGE, "python", "-c", _CHECK_BESIDE_SERVERS, json.dumps(check[1:])))
    cost = results.pop("cost")
    print(f"a health check takes {cost:.0%} of the processor time of one in Python")
    assert results == {
        "no server": False, "silent server": False, "404": False, "503": False, "500": False, "200": True
    }  # fmt: skip
    assert cost < 1 / 4
