"""Keys lead to messages, and both messages of an API have the same versions."""

import subprocess
import sys

import pytest

from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Request, Response


@pytest.mark.parametrize("key", ApiKey)
def test_both_messages_belong_together(key: ApiKey) -> None:
    found = api(key)
    assert issubclass(found.request, Request)
    assert issubclass(found.response, Response)
    assert found.request.API_KEY == found.response.API_KEY == key
    assert found.versions == found.request.VERSIONS == found.response.VERSIONS
    assert found.request.FLEXIBLE == found.response.FLEXIBLE


def test_a_module_is_imported_when_it_is_used() -> None:
    script = (
        "import sys; from barnabas_protocol.registry import ApiKey, api;"
        "before = 'barnabas_protocol.messages.metadata' in sys.modules; api(ApiKey.METADATA);"
        "print(before, 'barnabas_protocol.messages.metadata' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
