"""The file that names the process which uses a data directory."""

import json
from pathlib import Path

from barnabas_broker.cluster.owner_file import NAME, take_over
from barnabas_broker.files import REAL_FILES


def test_the_next_process_learns_who_was_there_before(tmp_path: Path) -> None:
    assert take_over(REAL_FILES, tmp_path, "first") is None
    assert take_over(REAL_FILES, tmp_path, "second") == "first"


def test_a_file_that_is_damaged_or_too_large_names_nobody(tmp_path: Path) -> None:
    inode = tmp_path.stat().st_ino
    for content in ("", "[", "[1]"):
        (tmp_path / NAME).write_text(content)
        assert take_over(REAL_FILES, tmp_path, "second") is None
    (tmp_path / NAME).write_text(" " * 5_000 + json.dumps({"incarnation": "first", "inode": inode}))
    assert take_over(REAL_FILES, tmp_path, "second") is None, "only its beginning is read"
