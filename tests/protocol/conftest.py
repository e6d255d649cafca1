"""Messages are compiled from the first use on, so that what is compared is what runs."""

from collections.abc import Iterator

import pytest

from barnabas_protocol import structures


@pytest.fixture(autouse=True, scope="module")
def compiled() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structures, "_USES", 0)
        yield
