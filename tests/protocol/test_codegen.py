"""Generated code gets the objects it refers to by name."""

import io
from collections.abc import Callable

import pytest
from construct import Construct, Int16ub, VarInt

from barnabas_protocol.codegen import Source, compile_builder, compile_parser


def test_another_object_of_the_same_name_gets_a_number() -> None:
    source, first, second = Source(), [1], [1]
    assert source.bind("tagged", first) == "tagged"
    assert source.bind("tagged", first) == "tagged"
    other = source.bind("tagged", second)
    assert other != "tagged"
    assert source.names["tagged"] is first
    assert source.names[other] is second


def test_a_construct_is_compiled() -> None:
    assert compile_parser(Int16ub, "a number")(io.BytesIO(b"\x01\x02"), None) == 258
    out = io.BytesIO()
    compile_builder(Int16ub, "a number")(258, out, None)
    assert out.getvalue() == b"\x01\x02"


@pytest.mark.parametrize("compiled", [compile_parser, compile_builder])
def test_a_part_that_generates_no_code_is_refused(compiled: Callable[[Construct, str], object]) -> None:
    with pytest.raises(TypeError, match="a number cannot be compiled: no code for <VarInt>; define _emitparse"):
        compiled(VarInt, "a number")
