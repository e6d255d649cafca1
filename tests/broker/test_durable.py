"""`broker --durable`: an acknowledgement means on disk."""

from pathlib import Path

import pytest

from barnabas_broker.__main__ import _parser, read_config
from barnabas_broker.config import Config, ConfigError
from barnabas_broker.config.keys import LOG_FLUSH_INTERVAL_MESSAGES


def config(*flags: str) -> Config:
    return read_config(_parser().parse_args(flags))[0]


def test_one_switch_syncs_before_each_acknowledgement(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("log.flush.interval.messages=1000\n")
    assert config("--durable")[LOG_FLUSH_INTERVAL_MESSAGES] == 1
    assert config("--durable", "--set", "log.flush.interval.messages=1")[LOG_FLUSH_INTERVAL_MESSAGES] == 1
    assert config("--durable", "--config", str(file))[LOG_FLUSH_INTERVAL_MESSAGES] == 1
    assert config("--config", str(file))[LOG_FLUSH_INTERVAL_MESSAGES] == 1000
    assert config()[LOG_FLUSH_INTERVAL_MESSAGES] > 1_000_000


def test_flags_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match=r"--durable and log.flush.interval.messages=5 are given: give one of them"):
        config("--durable", "--set", "log.flush.interval.messages=5")
