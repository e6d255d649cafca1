"""Declared messages as constructs: one for each version, interpreted at first, compiled when it is used often.

Reading and writing are compiled one by one, each takes about half a millisecond, and most messages of a process are
read or written a few times. Tags: KIP-482.
"""

import struct
from collections.abc import Callable
from functools import cache, cached_property
from io import BytesIO
from typing import Any, Final

from construct import Construct, FormatField

from barnabas_protocol import wire
from barnabas_protocol.codegen import Source, compile_builder, compile_parser
from barnabas_protocol.schema import NONE, Field, Message, Struct, Versions, WireType
from barnabas_protocol.wire import Reader, WireError, least_size


class _Structure(Construct):
    """The construct of a :class:`Struct` in one version; it parses to an instance."""

    def __init__(self, cls: type[Struct], version: int, flexible: bool, message_flexible: Versions) -> None:
        super().__init__()
        self.cls, self.flexible = cls, flexible
        self.present: list[tuple[Field, Construct]] = []
        self.tagged: dict[int, tuple[Field, Construct]] = {}
        self.absent: list[Field] = []
        for f in cls.FIELDS:
            if flexible and f.tag is not None and version in f.tagged:
                self.tagged[f.tag] = (f, _type_construct(f, version, flexible, message_flexible))
            elif version in f.versions:
                self.present.append((f, _type_construct(f, version, flexible, message_flexible)))
            else:
                self.absent.append(f)

    @cached_property
    def least(self) -> int:
        """The least number of bytes of a value."""
        return max(1, sum(least_size(con) for _, con in self.present) + self.flexible)

    def _sizeof(self, context: Any, path: str) -> int:
        raise NotImplementedError

    def _parse(self, stream: Reader, context: Any, path: str) -> Struct:
        made = self.cls.__new__(self.cls)
        for f, con in self.present:
            setattr(made, f.name, con._parse(stream, context, path))
        for f in (*self.absent, *(f for f, _ in self.tagged.values())):
            setattr(made, f.name, f.absent())
        if self.flexible:
            parse_tags(stream, context, made, self.tagged)
        return made

    def _build(self, obj: Struct, stream: BytesIO, context: Any, path: str) -> Struct:
        refuse_absent(obj, self.absent)
        for f, con in self.present:
            con._build(getattr(obj, f.name), stream, context, path)
        if self.flexible:
            build_tags(stream, context, obj, self.tagged)
        return obj

    def _emitparse(self, source: Source) -> str:
        name = f"parse_{self.cls.__name__}_{source.allocateId()}"
        new, made = source.bind("new", object.__new__), source.bind(self.cls.__name__, self.cls)
        lines = [f"def {name}(io, this):", f"    made = {new}({made})"]
        for run in self._runs():
            targets = ", ".join(f"made.{f.name}" for f, _ in run)
            if isinstance(run[0][1], FormatField):
                formats, size = _formats(run)
                unpack = source.bind(f"unpack_{formats}", _packing(formats)[0])
                lines.append(f"    {targets}{',' if len(run) == 1 else ''} = {unpack}(io.read({size}))")
            else:
                lines.append(f"    {targets} = {run[0][1]._compileparse(source)}")
        for f in (*self.absent, *(f for f, _ in self.tagged.values())):
            lines.append(f"    made.{f.name} = {_default(source, f)}")
        if self.flexible:
            # Nearly always there are no tags, which is a single zero.
            parse, tagged = source.bind("parse_tags", parse_tags), source.bind("tagged", self.tagged)
            lines.append(r"    tags = io.read(1)")
            lines.append(r"    if tags != b'\0':")
            lines.append(f"        io.seek(-len(tags), 1); {parse}(io, this, made, {tagged})")
        lines.append("    return made")
        source.append("\n".join(lines))
        return f"{name}(io, this)"

    def _emitbuild(self, source: Source) -> str:
        name = f"build_{self.cls.__name__}_{source.allocateId()}"
        lines = [f"def {name}(that, io, this):"]
        for f in self.absent:
            if not f.ignorable:
                refuse, absent = source.bind("refuse_absent", refuse_absent), source.bind("absent", self.absent)
                lines.append(f"    if that.{f.name} != {_default(source, f)}: {refuse}(that, {absent})")
        for run in self._runs():
            if isinstance(run[0][1], FormatField):
                formats, _ = _formats(run)
                pack = source.bind(f"pack_{formats}", _packing(formats)[1])
                lines.append(f"    io.write({pack}({', '.join(f'that.{f.name}' for f, _ in run)}))")
            else:
                lines.append(f"    obj = that.{run[0][0].name}; {run[0][1]._compilebuild(source)}")
        if self.flexible:
            not_default = " or ".join(f"that.{f.name} != {_default(source, f)}" for f, _ in self.tagged.values())
            if not_default:
                build, tagged = source.bind("build_tags", build_tags), source.bind("tagged", self.tagged)
                lines.append(f"    if {not_default}: {build}(io, this, that, {tagged})")
                lines.append("    else:")
            lines.append(r"        io.write(b'\0')" if not_default else r"    io.write(b'\0')")
        lines.append("    return that")
        source.append("\n".join(lines))
        return f"{name}(obj, io, this)"

    def _runs(self) -> list[list[tuple[Field, Construct]]]:
        """The present fields; neighbouring fixed-width numbers together, for they are one unpack."""
        runs: list[list[tuple[Field, Construct]]] = []
        for f, con in self.present:
            if runs and isinstance(con, FormatField) and isinstance(runs[-1][-1][1], FormatField):
                runs[-1].append((f, con))
            else:
                runs.append([(f, con)])
        return runs


def _default(source: Source, f: Field) -> str:
    """The default of a field as an expression: a list is a new one each time, a structure is never changed."""
    return source.bind(f"default_{f.name}", f.default) if isinstance(f.default, Struct) else repr(f.default)


def _formats(run: list[tuple[Field, Construct]]) -> tuple[str, int]:
    """The format characters of neighbouring numbers, and their size in bytes."""
    return "".join(con.fmtstr[1:] for _, con in run), sum(con.length for _, con in run)


@cache
def _packing(formats: str) -> tuple[Callable[[bytes], tuple[Any, ...]], Callable[..., bytes]]:
    """Functions that unpack and pack big-endian numbers of these formats."""
    numbers = struct.Struct(f">{formats}")
    return numbers.unpack, numbers.pack


def refuse_absent(obj: Struct, absent: list[Field]) -> None:
    """Check that a version can express `obj`.

    Raises:
        WireError: a field that the version lacks is not at its default, and Kafka does not call it ignorable.
    """
    for f in absent:
        if not f.ignorable and getattr(obj, f.name) != f.default:
            raise WireError(f"{type(obj).__name__}.{f.name} cannot be expressed in this version")


def parse_tags(io: Reader, this: Any, made: Struct | None, tagged: dict[int, tuple[Field, Construct]]) -> None:
    """Read a tag section (KIP-482): set the known tags in `made`, skip the others. Tags must ascend."""
    count = wire.read_uvarint(io)
    previous = -1
    for _ in range(count):
        tag = wire.read_uvarint(io)
        if tag <= previous:
            raise WireError(f"tag {tag} after tag {previous}")
        previous = tag
        size = wire.read_uvarint(io)
        if size > io.size - io.tell():
            raise WireError(f"tag {tag} of {size} bytes, {io.size - io.tell()} left")
        known = tagged.get(tag)
        if known is None:
            io.seek(size, 1)
            continue
        end = io.tell() + size
        setattr(made, known[0].name, known[1]._parse(io, this, known[0].name))
        if io.tell() != end:
            raise WireError(f"tag {tag} announced {size} bytes, took {io.tell() - end + size}")


def build_tags(io: BytesIO, this: Any, obj: Struct, tagged: dict[int, tuple[Field, Construct]]) -> None:
    """Write a tag section: the tagged fields that are not at their default, ascending."""
    sections = []
    for tag in sorted(tagged):
        f, con = tagged[tag]
        value = getattr(obj, f.name)
        if value != f.default:
            section = BytesIO()
            con._build(value, section, this, f.name)
            sections.append((tag, section.getvalue()))
    wire.write_uvarint(io, len(sections))
    for tag, data in sections:
        wire.write_uvarint(io, tag)
        wire.write_uvarint(io, len(data))
        io.write(data)


class _NullableStructure(Construct):
    """A structure that may be null: an int8 before it is -1 or 1; in a tagged field an unsigned varint 0 or 1."""

    def __init__(self, subcon: _Structure, *, tagged: bool) -> None:
        super().__init__()
        self.subcon, self.tagged, self.least = subcon, tagged, 1

    def _parse(self, stream: Reader, context: Any, path: str) -> Struct | None:
        mark = wire.read_uvarint(stream) if self.tagged else wire.INT8._parse(stream, context, path)
        if mark == (0 if self.tagged else -1):
            return None
        if mark != 1:
            raise WireError(f"structure mark {mark}")
        return self.subcon._parse(stream, context, path)

    def _build(self, obj: Struct | None, stream: BytesIO, context: Any, path: str) -> Any:
        if obj is None:
            stream.write(b"\x00" if self.tagged else b"\xff")
        else:
            stream.write(b"\x01")
            self.subcon._build(obj, stream, context, path)
        return obj

    def _emitparse(self, source: Source) -> str:
        name, error = f"parse_nullable_{source.allocateId()}", source.bind("WireError", WireError)
        mark = wire.UVARINT if self.tagged else wire.INT8
        source.append(
            f"""
            def {name}(io, this):
                mark = {mark._compileparse(source)}
                if mark == {0 if self.tagged else -1}: return None
                if mark != 1: raise {error}(f'structure mark {{mark}}')
                return {self.subcon._compileparse(source)}
            """
        )
        return f"{name}(io, this)"

    def _emitbuild(self, source: Source) -> str:
        name = f"build_nullable_{source.allocateId()}"
        null, present = (b"\x00" if self.tagged else b"\xff"), b"\x01"
        source.append(
            f"""
            def {name}(obj, io, this):
                if obj is None: return io.write({null!r})
                io.write({present!r})
                {self.subcon._compilebuild(source)}
            """
        )
        return f"{name}(obj, io, this)"


def _type_construct(f: Field, version: int, flexible: bool, message_flexible: Versions) -> Construct:
    compact = flexible if f.flexible is None else version in f.flexible
    nullable = f.nullable is not NONE and version in f.nullable
    tagged = f.tag is not None and version in f.tagged
    return _construct(f.type, version, flexible, message_flexible, compact, nullable, tagged)


def _construct(
    of: WireType[Any],
    version: int,
    flexible: bool,
    message_flexible: Versions,
    compact: bool,
    nullable: bool,
    tagged: bool,
) -> Construct:
    if of.element is not None:
        element = _construct(of.element, version, flexible, message_flexible, compact, False, False)
        return wire.Array(element, compact=compact, nullable=nullable)
    if of.struct is not None:
        structure = _Structure(of.struct, version, flexible, message_flexible)
        return _NullableStructure(structure, tagged=tagged) if nullable else structure
    if nullable:
        return of.compact_nullable if compact else of.nullable
    return of.compact if compact else of.plain


def construct_for(cls: type[Message], version: int) -> Construct:
    """The interpreted construct of `cls` in `version`.

    Raises:
        WireError: there is no such version.
    """
    if version not in cls.VERSIONS:
        raise WireError(f"{cls.__name__} has no version {version}, only {cls.VERSIONS}")
    return _Structure(cls, version, version in cls.FLEXIBLE, cls.FLEXIBLE)


#: A message is interpreted this many times before it is compiled, and only while it is small: up to so many bytes.
#: Compiling takes as long as 20 interpreted uses of a Fetch request, and as 120 of a FindCoordinator request.
_USES: Final = 32
_SMALL: Final = 2048


class MessageCodec:
    """Reads and writes a message in one version.

    Args:
        cls: the message.
        version: its version.

    Attributes:
        parsefunc: reads the message from a :class:`~barnabas_protocol.wire.Reader`; the second argument is None.
        buildfunc: writes the message to a buffer; the third argument is None.

    Raises:
        WireError: there is no such version.
    """

    __slots__ = ("_interpreted", "_name", "_uses", "buildfunc", "parsefunc")

    def __init__(self, cls: type[Message], version: int) -> None:
        self._interpreted = construct_for(cls, version)
        self._name = f"{cls.__name__} v{version}"
        self._uses = 0
        self.parsefunc: Callable[[Reader, None], Any] = self._parse
        # A response is compiled at once, because its size is not known before it is written.
        self.buildfunc: Callable[[Any, BytesIO, None], Any] = self._build if cls.SMALL else self._build_compiled

    # Two threads that compile at the same time do the same work twice.

    def compile_parser(self) -> None:
        """Read compiled from now on."""
        self.parsefunc = compile_parser(self._interpreted, self._name)

    def compile_builder(self) -> None:
        """Write compiled from now on."""
        self.buildfunc = compile_builder(self._interpreted, self._name)

    def _parse(self, reader: Reader, context: None) -> Any:
        self._uses += 1
        if self._uses > _USES or reader.size > _SMALL:
            self.compile_parser()
            return self.parsefunc(reader, context)
        return self._interpreted._parse(reader, context, "")

    def _build(self, message: Message, out: BytesIO, context: None) -> Any:
        self._uses += 1
        if self._uses > _USES:
            return self._build_compiled(message, out, context)
        built = self._interpreted._build(message, out, context, "")
        if out.tell() > _SMALL:
            self.compile_builder()
        return built

    def _build_compiled(self, message: Message, out: BytesIO, context: None) -> Any:
        self.compile_builder()
        return self.buildfunc(message, out, context)


@cache
def codec_for(cls: type[Message], version: int) -> MessageCodec:
    """The codec of `cls` in `version`, one for the whole process.

    Raises:
        WireError: there is no such version.
    """
    return MessageCodec(cls, version)


@cache
def tagged_fields(cls: type[Struct], version: int, message: type[Message]) -> dict[int, tuple[Field, Construct]]:
    """The tagged fields of `cls`, a part of `message`, in a flexible version: by tag, for :func:`parse_tags`."""
    return _Structure(cls, version, True, message.FLEXIBLE).tagged


@cache
def element_builder(cls: type[Struct], version: int, message: type[Message]) -> Callable[[Any, BytesIO, None], Any]:
    """A function that writes one `cls`, an element of an array in `message`, as :attr:`MessageCodec.buildfunc`."""
    element = _Structure(cls, version, version in message.FLEXIBLE, message.FLEXIBLE)
    return compile_builder(element, f"{cls.__name__} v{version}")
