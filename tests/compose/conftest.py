"""Fixtures: a Docker engine, and the containers of `docker-compose.yml`, for the session."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.compose.engine import Engine, NotHere, engine
from tests.compose.load import create_topic
from tests.compose.stack import IMAGE, SPARK_IMAGE, Stack
from tests.interop.cache import Unavailable
from tests.needs import missing


@pytest.fixture(scope="session")
def docker() -> Iterator[Engine]:
    """A Docker engine that can build and run the containers."""
    began = time.monotonic()
    with ExitStack() as stack:
        try:
            found = stack.enter_context(engine())
        except NotHere as why:
            missing(f"no containers can run: {why.reason}", on_this_machine=False)
        except Unavailable as why:
            missing(f"no containers can run: {why.reason}")
        _say(f"Docker is ready after {time.monotonic() - began:.0f} s")
        yield found


@pytest.fixture(scope="session")
def image(docker: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The containers, built and not started."""
    stack = Stack(docker, tmp_path_factory.mktemp("compose"))
    stack.down("--volumes", "--timeout=0")  # of a run that was killed
    began = time.monotonic()
    stack.build("broker1")
    _say(f"the image is built after {time.monotonic() - began:.0f} s")
    yield stack
    docker.docker("image", "rm", "--force", IMAGE, SPARK_IMAGE)


@pytest.fixture(scope="session")
def stack(image: Stack) -> Iterator[Stack]:
    """The containers, all healthy within the bound, with the topic."""
    try:
        began = time.monotonic()
        image.up("--build")
        _say(f"all containers are healthy after {time.monotonic() - began:.0f} s")
        create_topic(image.bootstrap_servers)
        yield image
    except BaseException:
        _say(image.compose("logs", "--no-color"))
        raise
    finally:
        image.down("--volumes", "--timeout=0")


def _say(line: str) -> None:
    print(line, file=sys.stderr)
