"""When a follower takes the process of its leader for ended."""

from barnabas_broker.replication.following import Finding, LeaderProcess

EPOCH = 7


def answered() -> LeaderProcess:
    process = LeaderProcess()
    process.answered(EPOCH)
    return process


def test_two_refusals_after_a_connection_show_that_the_process_has_ended() -> None:
    process = LeaderProcess()
    process.accepted(EPOCH)
    assert process.failed(EPOCH, refused=True) is Finding.UNDECIDED
    assert process.failed(EPOCH, refused=True) is Finding.ENDED


def test_two_refusals_after_an_answer_show_that_the_process_has_ended() -> None:
    process = answered()
    assert process.failed(EPOCH, refused=False) is Finding.UNDECIDED, "the connection was reset"
    assert process.failed(EPOCH, refused=True) is Finding.UNDECIDED
    assert process.failed(EPOCH, refused=True) is Finding.ENDED


def test_it_stays_ended_so_that_a_request_to_etcd_that_failed_is_repeated() -> None:
    process = answered()
    findings = [process.failed(EPOCH, refused=True) for _ in range(9)]
    assert findings[0] is Finding.UNDECIDED
    assert set(findings[1:]) == {Finding.ENDED}


def test_closed_connections_do_not_count_as_refused() -> None:
    process = answered()
    findings = []
    for _ in range(9):
        process.accepted(EPOCH)
        findings.append(process.failed(EPOCH, refused=False))
    assert Finding.ENDED not in findings
    assert findings[-1] is Finding.UNKNOWN, "the pauses become longer"


def test_refusals_must_follow_each_other() -> None:
    process = answered()
    for refused in (True, False, True):
        assert process.failed(EPOCH, refused=refused) is Finding.UNDECIDED
    process.accepted(EPOCH)
    assert process.failed(EPOCH, refused=True) is Finding.UNDECIDED


def test_refusals_count_only_for_the_broker_epoch_in_which_a_connection_was_accepted() -> None:
    process = LeaderProcess()
    assert process.failed(EPOCH, refused=True) is Finding.UNKNOWN, "never connected"
    process.answered(EPOCH)
    process.failed(EPOCH, refused=True)
    process.failed(EPOCH, refused=True)
    later = EPOCH + 1
    findings = [process.failed(later, refused=True) for _ in range(9)]
    assert set(findings) == {Finding.UNKNOWN}, "the broker has registered again, and no connection was accepted since"
    process.accepted(later)
    assert process.failed(EPOCH, refused=True) is Finding.UNKNOWN, "the attempt began in the earlier epoch"
