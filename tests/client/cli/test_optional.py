"""Optional dependencies of commands."""

import json

import pytest

from barnabas_client.cli.optional import NotInstalledError, optional


def test_an_installed_module_is_imported() -> None:
    assert optional("json", extra="cli", purpose="a test") is json


def test_a_missing_module_is_named_with_its_remedy() -> None:
    with pytest.raises(NotInstalledError) as caught:
        optional("barnabas_missing.part", extra="cli", purpose="a test", instead="use cat")
    assert str(caught.value) == (
        "a test needs barnabas_missing, which is not installed. To do: pip install 'barnabas[cli]', or use cat"
    )
