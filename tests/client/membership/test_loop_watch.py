"""What the answers of an event loop tell."""

import threading

from barnabas_client.membership.loop_watch import INTERVAL, LEAST, LoopWatch, location


def test_how_often_and_how_long() -> None:
    usual = LoopWatch(heartbeat_interval=3.0, max_poll_interval=300.0)
    assert (usual.interval, usual.threshold) == (INTERVAL, 3.0)
    hurried = LoopWatch(heartbeat_interval=0.005, max_poll_interval=0.5)
    assert (hurried.interval, hurried.threshold) == (0.05, LEAST)


def test_a_loop_that_answers_is_only_measured() -> None:
    watch = LoopWatch(3.0, 300.0)
    for lag in (0.001, 2.9, 0.01):
        watch.asked(10.0)
        assert watch.answered(lag) is None
    assert (watch.last, watch.longest) == (0.01, 2.9)


def test_a_blocked_loop_is_told_once_where_and_what_to_do() -> None:
    watch = LoopWatch(3.0, 300.0)
    watch.asked(10.0)
    watch.inspected(13.001, "in handle (app.py:42)")
    told = watch.answered(8.7)
    assert told is not None
    assert told.startswith("the event loop was blocked for 8.7 s, in handle (app.py:42); heartbeats continued")
    assert "max_poll_interval_ms (300000 ms)" in told
    assert "asyncio.to_thread" in told
    watch.asked(20.0)
    assert watch.answered(0.001) is None


def test_where_a_loop_is_blocked_is_known_until_it_answers() -> None:
    watch = LoopWatch(3.0, 300.0)
    places = [watch.location]
    watch.asked(10.0)
    watch.inspected(13.001, "in handle (app.py:42)")
    places.append(watch.location)
    watch.answered(8.7)
    places.append(watch.location)
    assert places == [None, "in handle (app.py:42)", None]


def test_a_process_that_stood_still_is_not_blamed_on_the_loop() -> None:
    watch = LoopWatch(3.0, 300.0)
    watch.asked(10.0)
    watch.inspected(18.7, "in select (selectors.py:1)")  # the look itself came 5.7 s late
    told = watch.answered(8.7)
    assert told is not None
    assert told.startswith("this process stood still for 8.7 s, and so did its heartbeats")
    watch.asked(20.0)
    told = watch.answered(9.0)  # the answer was there before anyone could look
    assert told is not None
    assert told.startswith("this process stood still for 9.0 s")


def test_a_place_is_in_the_programs_own_code() -> None:
    inside, leave = threading.Event(), threading.Event()

    def wait_in_the_library() -> None:
        inside.set()
        leave.wait(30)

    thread = threading.Thread(target=wait_in_the_library)
    thread.start()
    assert inside.wait(30)
    try:
        assert location(thread.ident or 0).startswith("in wait_in_the_library (test_loop_watch.py:")
    finally:
        leave.set()
        thread.join(30)
    assert location(thread.ident or 0) == "at an unknown place"
