"""The audit log: refusals that repeat are folded."""

import logging
from typing import Any

import pytest

from barnabas_broker.log_throttle import WINDOW
from barnabas_broker.security.audit import Audit
from barnabas_broker.security.principals import Principal
from barnabas_protocol.acls import AclOperation, AclResourceType

OF_ADA = Principal("User", "ada"), "10.0.0.7"
OF_BOB = Principal("User", "bob"), "10.0.0.8"


def test_lines(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = Audit(lambda: now)
    for _ in range(3):
        log.not_authorized(*OF_ADA, AclOperation.READ, AclResourceType.TOPIC, "orders\n" + "x" * 1000)
    now = WINDOW
    log.tick()
    log.not_authorized(*OF_BOB, AclOperation.WRITE, AclResourceType.GROUP, "g")
    log.not_authorized(*OF_BOB, AclOperation.WRITE, AclResourceType.GROUP, "g")
    log.close()
    lines: list[dict[str, Any]] = [record.msg for record in caplog.records]  # type: ignore[misc]
    assert [record.name for record in caplog.records] == ["barnabas_broker.audit"] * 4
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    ada = {"event": "not authorized", "principal": "User:ada", "host": "10.0.0.7", "operation": "READ"}
    assert lines[0].items() >= ada.items()
    assert lines[0]["resource"] == "TOPIC"
    assert lines[0]["name"] == "orders\\n" + "x" * 242
    assert "repeated" not in lines[0]
    assert lines[1] == lines[0] | {"repeated": 2}
    assert (lines[2]["principal"], lines[3]["repeated"]) == ("User:bob", 1)


def test_logins_and_failed_ones_are_folded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas_broker.audit")
    now = 0.0
    log = Audit(lambda: now)
    for _ in range(5):
        log.logged_in(*OF_ADA, "OUTSIDE", "PLAIN")
        log.login_failed("10.0.0.9", "OUTSIDE", "wrong", "eve\n")
        log.login_failed("10.0.0.9", "OUTSIDE", "malformed", "")
        log.wrong_token("10.0.0.9")
        log.offsets_set(*OF_ADA, "reset", "g")
    now = WINDOW
    log.tick()
    lines: list[dict[str, Any]] = [record.msg for record in caplog.records]  # type: ignore[misc]
    ada = {"principal": "User:ada", "host": "10.0.0.7"}
    first: list[dict[str, Any]] = [
        {"event": "authenticated", **ada, "listener": "OUTSIDE", "mechanism": "PLAIN"},
        {
            "event": "authentication failed",
            "host": "10.0.0.9",
            "listener": "OUTSIDE",
            "reason": "wrong",
            "user": "eve\\n",
        },
        {"event": "authentication failed", "host": "10.0.0.9", "listener": "OUTSIDE", "reason": "malformed"},
        {"event": "wrong token", "host": "10.0.0.9"},
        {"event": "offsets set", **ada, "group": "g", "client_id": "reset"},
    ]
    assert [dict(line) for line in lines[:5]] == first
    assert [dict(line) for line in lines[5:]] == [{**line, "repeated": 4} for line in first]
    levels = {record.msg["event"]: record.levelno for record in caplog.records}  # type: ignore[index]
    assert levels["authenticated"] == levels["offsets set"] == logging.INFO
    assert levels["authentication failed"] == levels["wrong token"] == logging.WARNING
