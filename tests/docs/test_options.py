"""That docstrings describe every option, with its default and unit, as docs/architecture.md says.

The reference is generated from them.
"""

import ast
import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, is_typeddict

import pytest

import barnabas
import barnabas.testing
from barnabas import Admin, Consumer, Producer, ShareConsumer
from barnabas.testing import Broker, Faults
from barnabas_broker import pytest_plugin
from barnabas_client.config import ClientSettings, ConsumerSettings, ProducerSettings, ShareConsumerSettings
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.datasource import BarnabasDataSource
from barnabas_pipeline.options import KNOWN
from barnabas_pipeline.source.options import ReadOptions

DOCS: Final = Path(__file__).parents[2] / "docs"
#: The units that numbers have.
UNITS: Final = r"(ms|s|bytes?|records?|offsets?|partitions?|handlers?|retries|requests?)\b"
#: What the entries of options end with.
ENDING: Final = re.compile(r"(?:\A|[.:] )(?:Default: (?P<default>.+)|Required)\.\Z", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """What a docstring says about an option."""

    name: str
    kind: str
    text: str

    @property
    def default(self) -> str:
        """What comes after ``Default:``; "" for a required option."""
        found = ENDING.search(self.text)
        assert found is not None, f"{self.name} does not end with its default: {self.text!r}"
        return found["default"] or ""


def entries(docstring: str | None, section: str) -> dict[str, Entry]:
    """The entries of one section of a docstring in Google's style."""
    lines = inspect.cleandoc(docstring or "").splitlines()
    assert f"{section}:" in lines, f"no section {section}"
    found: dict[str, Entry] = {}
    name = ""
    for line in lines[lines.index(f"{section}:") + 1 :]:
        if line and not line.startswith("    "):
            break
        if line.startswith("        "):
            old = found[name]
            found[name] = Entry(name, old.kind, f"{old.text} {line.strip()}")
        elif line.strip():
            head = re.fullmatch(r"    (\S+?)(?: \((.+?)\))?: (.+)", line)
            assert head is not None, f"not an entry: {line!r}"
            name = head[1]
            found[name] = Entry(name, head[2] or "", head[3])
    return found


def literal(default: str) -> tuple[object, str]:
    """The Python literal that a default begins with, and the rest."""
    for end in sorted((match.start() for match in re.finditer(r"[ ,:]|\Z", default)), reverse=True):
        if default[:end].endswith(","):
            continue  # which would make it a tuple
        try:
            return ast.literal_eval(default[:end]), default[end:]
        except (ValueError, SyntaxError):
            continue
    raise AssertionError(f"{default!r} begins with no literal")


def check(entry: Entry, annotation: object, default: object) -> None:
    """Compare an entry with the parameter."""
    if default is inspect.Parameter.empty:
        assert entry.text.endswith("Required."), f"{entry.name}: {entry.text}"
        return
    value, rest = literal(entry.default)
    assert value == default, f"{entry.name}: the docstring says {value!r}, the code {default!r}"
    assert type(value) is type(default), entry.name
    numbers = {int, float} & {annotation, *typing.get_args(annotation)} if entry.name != "port" else set()
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        assert re.match(" " + UNITS, rest), f"{entry.name}: no unit after the default in {entry.default!r}"
    elif numbers:
        assert re.search(UNITS + "|milliseconds|seconds", entry.text), f"{entry.name}: no unit in {entry.text!r}"
    assert not entry.name.endswith("_ms") or re.search(r"\bms\b|milliseconds", entry.text), entry.name


@pytest.mark.parametrize(
    ("called", "described"),
    [(one, one) for one in (Consumer, ShareConsumer, Producer, Admin, Broker, Consumer.run, ShareConsumer.run)],
    ids=["Consumer", "ShareConsumer", "Producer", "Admin", "testing.Broker", "Consumer.run", "ShareConsumer.run"],
)
def test_every_argument_is_described(called: Callable[..., Any], described: Any) -> None:
    written = entries(described.__doc__, "Args")
    hints = typing.get_type_hints(called.__init__ if inspect.isclass(called) else called)
    parameters = dict(inspect.signature(called).parameters)
    parameters.pop("self", None)
    assert sorted(written) == sorted(parameters)
    for name, parameter in parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_POSITIONAL:
            check(written[name], hints[name], parameter.default)


@pytest.mark.parametrize(
    ("cls", "settings"),
    [(Consumer, ConsumerSettings), (ShareConsumer, ShareConsumerSettings), (Producer, ProducerSettings)],
)
def test_settings_are_the_arguments(cls: type, settings: Any) -> None:
    hints = typing.get_type_hints(cls.__init__)  # type: ignore[misc]
    optional = {name for name, one in inspect.signature(cls).parameters.items() if one.default is not one.empty}
    given = {name: hints[name] for name in optional if not name.endswith("serializer")}
    assert typing.get_type_hints(settings) == given
    assert typing.get_type_hints(ClientSettings).items() <= given.items()


def test_public_classes_describe_what_they_are_made_of() -> None:
    """Settings, arguments and results; an enum has comments, and an error its message."""
    for name in [*barnabas.__all__, *barnabas.testing.__all__]:
        cls = getattr(barnabas, name, None) or getattr(barnabas.testing, name)
        if not inspect.isclass(cls) or issubclass(cls, Enum | Exception) or cls.__init__ is object.__init__:
            continue
        if is_typeddict(cls) or getattr(cls, "_is_protocol", False):
            continue
        text = inspect.getdoc(cls) or ""
        written = {one for section in ("Args", "Attributes") if f"{section}:" in text for one in entries(text, section)}
        assert {*inspect.signature(cls).parameters} - {"args", "kwargs"} <= written, name


def test_every_public_method_describes_its_arguments_or_none() -> None:
    for cls in (Consumer, ShareConsumer, Producer, Admin, Broker):
        for name, function in inspect.getmembers(cls, inspect.isfunction):
            if name.startswith("_") or "\nArgs:" not in (text := inspect.getdoc(function) or ""):
                continue
            parameters = {*inspect.signature(function).parameters} - {"self", "_unknown"}
            assert set(entries(text, "Args")) == parameters, f"{cls.__name__}.{name}"


def test_every_kafka_option_of_the_spark_source_is_described() -> None:
    written = entries(Settings.__doc__, "Attributes")
    parameters = inspect.signature(Settings).parameters
    assert list(written) == list(parameters)
    for name, parameter in parameters.items():
        check(written[name], parameter.annotation, parameter.default)


def check_option(entry: Entry) -> None:
    """An option outside of Python has its type in parentheses, and a unit if it is a number."""
    value, rest = literal(entry.default)
    assert entry.kind, f"{entry.name}: no type"
    if entry.kind == "integer":
        described = rest if value is not None else f"{rest} {entry.text}"
        assert re.search(r" (tasks|" + UNITS + ")", described), f"{entry.name}: no unit in {entry.text!r}"


def test_every_option_of_the_spark_source_is_described() -> None:
    written = entries(BarnabasDataSource.__doc__, "Options")
    assert sorted(written) == sorted(KNOWN)
    for entry in written.values():
        check_option(entry)


def test_defaults_of_the_spark_source() -> None:
    """What an option's docstring says equals what its absence means."""
    written = entries(BarnabasDataSource.__doc__, "Options")
    base = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
    for streaming in (False, True):
        absent = ReadOptions.of(base, streaming=streaming)
        for name, entry in written.items():
            value, rest = literal(entry.default)
            if name == "startingOffsets" and not streaming:
                value = "earliest"
                assert '"earliest" for a batch' in rest
            if value is None or name == "subscribe" or (streaming and name.startswith("ending")):
                continue
            text = str(value).lower() if isinstance(value, bool) else str(value)
            assert ReadOptions.of({**base, name: text}, streaming=streaming) == absent, name


def test_every_option_of_the_pytest_plugin_is_described() -> None:
    written = entries(pytest_plugin.__doc__, "Options")
    parser = pytest.Parser(_ispytest=True)
    pytest_plugin.pytest_addoption(parser)
    assert sorted(written) == sorted(parser._inidict)
    for name, (_, kind, default) in parser._inidict.items():
        check_option(written[name])
        assert literal(written[name].default)[0] == default
        assert (written[name].kind, kind) in (("text", "string"), ("lines of text", "linelist"))
    flags = [flag for option in parser.getgroup("kafka").options for flag in option.names()]
    assert all(flag in f"{written[flag.removeprefix('--').replace('-', '_')].text}" for flag in flags)
    assert len(flags) == len(written)


def table(page: str, head: str) -> list[list[str]]:
    """The cells of the table of a page that begins with a line."""
    lines = (DOCS / page).read_text().splitlines()
    first = lines.index(head) + 2
    last = next(at for at in range(first, len(lines)) if not lines[at].startswith("|"))
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines[first:last]]


def codes(cell: str) -> list[str]:
    """The code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_about_spark_has_every_option_with_its_default() -> None:
    written = entries(BarnabasDataSource.__doc__, "Options")
    shown: dict[str, str] = {}
    for options, default, *_ in table("spark.md", "| Option | Default | |"):
        shown |= dict.fromkeys(codes(options), default)
    assert sorted(shown) == sorted(KNOWN)
    for name, entry in written.items():
        value = literal(entry.default)[0]
        text = "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"
        assert shown[name].partition(";")[0] == text, name


def test_the_page_about_spark_has_every_kafka_option() -> None:
    text = (DOCS / "spark.md").read_text()
    paragraph = text[text.index("Options of the Kafka client start with") :].partition("Defaults are")[0]
    values = {"PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT", "kafka."}
    shown = [name for name in codes(paragraph) if name not in values]
    assert sorted(shown) == sorted(name.replace("_", ".") for name in inspect.signature(Settings).parameters)
    defaults = text[text.index("except for larger sizes:") :].partition("Any other")[0]
    settings = Settings(bootstrap_servers="localhost:9092")
    sizes = {"4 MiB": 4 << 20, "128 KiB": 128 << 10, "5": 5, "all": -1}
    found = re.findall(r"`([\w.]+)`(?: is)? (?:`(\w+)`|(\d+(?: [KM]iB)?))", defaults)
    assert len(found) == 4
    for name, word, size in found:
        assert getattr(settings, name.replace(".", "_")) == sizes[word or size], name


def test_the_page_about_testing_has_every_fixture_with_its_scope() -> None:
    fixtures = {
        name: found._fixture_function_marker.scope
        for name, found in vars(pytest_plugin).items()
        if isinstance(found, pytest.FixtureDef) or hasattr(found, "_fixture_function_marker")
    }
    rows = table("testing.md", "| Fixture | Scope | What it is |")
    assert {codes(name)[0]: scope for name, scope, _ in rows} == fixtures


def test_the_page_about_testing_has_every_setting_and_fault() -> None:
    text = (DOCS / "testing.md").read_text()
    for name in entries(pytest_plugin.__doc__, "Options"):
        assert f"--{name.replace('_', '-')}" in text
        assert re.search(rf"^{name} =", text, re.MULTILINE)
    shown = {}
    for calls, _ in table("testing.md", "| Fault | Effect |"):
        for call in codes(calls):
            parsed = ast.parse(call, mode="eval").body
            assert isinstance(parsed, ast.Call)
            assert isinstance(parsed.func, ast.Name)
            shown[parsed.func.id] = parsed
    methods = {name: call for name, call in inspect.getmembers(Faults, inspect.isfunction) if not name.startswith("_")}
    assert sorted(shown) == sorted(methods)
    for name, parsed in shown.items():
        parameters = dict(inspect.signature(methods[name]).parameters)
        for argument in parsed.args:
            assert isinstance(argument, ast.Name)
            assert parameters[argument.id].default is inspect.Parameter.empty, name
        for keyword in parsed.keywords:
            assert parameters[str(keyword.arg)].default == ast.literal_eval(keyword.value), name
        required = {one.name for one in parameters.values() if one.default is inspect.Parameter.empty} - {"self"}
        assert required == {argument.id for argument in parsed.args if isinstance(argument, ast.Name)}, name
