"""Messages are compiled from the first use on: the tests compare the compiled form with the interpreted one."""

from collections.abc import Iterator

import pytest

from barnabas_protocol import structures


@pytest.fixture(autouse=True, scope="module")
def compiled() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structures, "_USES", 0)
        yield
