"""A folder on a file system of Hadoop whose classes differ from those of the local one, as S3A's do."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake.folder import HadoopFolder

pytestmark = pytest.mark.spark


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> HadoopFolder:
    return HadoopFolder(spark, str(tmp_path))


def test_names_of_a_file_system_with_statuses_of_its_own(folder: HadoopFolder, tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    jvm: Any = folder._jvm
    kind = jvm.org.apache.hadoop.fs.LocatedFileStatus
    statuses = folder._new_array(kind, 1)
    statuses[0] = kind(folder._fs.getFileStatus(folder.at("one")), None)
    folder._fs = MagicMock()
    folder._fs.listStatus.return_value = statuses
    assert folder.names() == ["one"]


def test_a_store_with_conditional_writes_creates_a_file_once(folder: HadoopFolder) -> None:
    folder._fs = MagicMock()
    folder._fs.hasPathCapability.return_value = True
    stream = folder._fs.createFile.return_value.must.return_value.recursive.return_value.build.return_value
    folder.write_once("_delta_log/0.json", b"one")
    folder._fs.createFile.return_value.must.assert_called_once_with("fs.option.create.conditional.overwrite", True)
    stream.write.assert_called_once_with(bytearray(b"one"))
    folder._fs.create.assert_not_called()
    stream.close.side_effect = OSError("org.apache.hadoop.fs.s3a.RemoteFileChangedException: 412")
    with pytest.raises(LakeError, match="another process has written"):
        folder.write_once("_delta_log/0.json", b"two")
