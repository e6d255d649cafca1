"""The containers of `docker-compose.yml`."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from barnabas_broker.local_etcd import free_port
from tests.compose.engine import ROOT, Engine

BROKERS: Final = ("broker1", "broker2", "broker3")
#: The brokers of the profile of this name.
SECURE: Final = ("secure1", "secure2", "secure3")
#: Names of our own, so that a user's containers, volumes and images stay.
PROJECT: Final = "barnabas-test"
IMAGE: Final = "barnabas-test"
SPARK_IMAGE: Final = "barnabas-test-spark"
#: Seconds: containers of a busy machine take more than 60.
HEALTHY: Final = 180
_BUILD: Final = 900.0
_COMMAND: Final = 120.0


class Stack:
    """Runs Compose commands.

    Args:
        engine: where the containers run.
        directory: for the file that gives the images names of our own.
    """

    def __init__(self, engine: Engine, directory: Path) -> None:
        self.engine = engine
        self._ports = {broker: free_port() for broker in (*BROKERS, *SECURE)}
        build = {} if engine.build_network is None else {"build": {"network": engine.build_network}}
        brokers = (*BROKERS, *SECURE, "secure-setup")
        own = {broker: {"image": IMAGE, **build} for broker in brokers} | {"pipeline": {"image": SPARK_IMAGE, **build}}
        override = directory / "override.json"
        override.write_text(json.dumps({"services": own}))
        self._files = ["--file", str(ROOT / "docker-compose.yml"), "--file", str(override)]
        self._variables = {f"{broker.upper()}_PORT": str(port) for broker, port in self._ports.items()}
        if engine.python_image is not None:
            self._variables["PYTHON_IMAGE"] = engine.python_image

    @property
    def base(self) -> str:
        """The base image."""
        return str(self.configuration()["services"]["broker1"]["build"]["args"]["PYTHON_IMAGE"])

    def configuration(self) -> Any:
        """Return the whole configuration, as Compose reads it."""
        return json.loads(self.compose("--profile", "*", "config", "--format", "json"))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"localhost:{self._ports[broker]}" for broker in BROKERS)

    @property
    def secure_servers(self) -> str:
        return ",".join(f"localhost:{self._ports[broker]}" for broker in SECURE)

    def secure_port(self, broker: str) -> int:
        return self._ports[broker]

    def build(self, service: str) -> None:
        self.compose("--profile", "*", "build", service, timeout=_BUILD)

    def up(self, *options: str) -> None:
        """Start the containers and wait until all are healthy."""
        self.compose("up", "--wait", "--wait-timeout", str(HEALTHY), *options, timeout=_BUILD)

    def up_secure(self, *options: str) -> None:
        """Start the containers of the profile `secure`, without the others, and wait until the brokers are healthy."""
        up = ("up", "--wait", "--wait-timeout", str(HEALTHY), *options, *SECURE)
        self.compose("--profile", "secure", *up, timeout=_BUILD)

    def down(self, *options: str) -> None:
        self.compose("--profile", "*", "down", "--remove-orphans", *options)

    def compose(self, *arguments: str, timeout: float = _COMMAND) -> str:
        """Return the output of a Compose command, which must succeed."""
        command = ["compose", "--project-name", PROJECT, *self._files, *arguments]
        done = self.engine.docker(*command, timeout=timeout, variables=self._variables)
        assert done.returncode == 0, f"docker compose {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def inspect(self, service: str) -> Any:
        """Return what Docker knows of the container of a service, which may have stopped."""
        return json.loads(self._ask("inspect", self.compose("ps", "--all", "--quiet", service).strip()))[0]

    def inspect_image(self, image: str) -> Any:
        return json.loads(self._ask("image", "inspect", image))[0]

    def run_in_image(self, image: str, program: str, *arguments: str) -> str:
        """Return the output of a program in a new container without a network."""
        return self._ask("run", "--rm", "--network=none", f"--entrypoint={program}", image, *arguments)

    def _ask(self, *arguments: str) -> str:
        done: subprocess.CompletedProcess[str] = self.engine.docker(*arguments, timeout=_COMMAND)
        assert done.returncode == 0, f"docker {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout
