"""The modules that compiled wheels have. `make test-compiled` runs the tests of protocol and client with them."""

from tests.packaging.compiled import ROOT, is_compiled, modules


def test_modules_to_be_compiled_exist() -> None:
    assert modules()
    assert all((ROOT / each).is_file() for each in modules())


def test_a_source_tree_runs_them_as_they_are() -> None:
    assert not any(is_compiled(each) for each in modules())
