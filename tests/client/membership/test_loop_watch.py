"""Lag and blockages of an event loop, from its answers."""

import threading

from barnabas_client.membership.loop_watch import INTERVAL, LEAST, LoopWatch, location


def test_interval_and_threshold() -> None:
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


def test_a_blocked_loop_causes_one_warning() -> None:
    watch = LoopWatch(3.0, 300.0)
    watch.asked(10.0)
    watch.inspected(13.001, "in handle (app.py:42)")
    seen = watch.answered(8.7)
    assert seen is not None
    assert seen.startswith("the event loop was blocked for 8.7 s, in handle (app.py:42); heartbeats continued")
    assert "max_poll_interval_ms (300000 ms)" in seen
    assert "asyncio.to_thread" in seen
    watch.asked(20.0)
    assert watch.answered(0.001) is None


def test_the_location_is_known_until_the_loop_answers() -> None:
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
    seen = watch.answered(8.7)
    assert seen is not None
    assert seen.startswith("this process stood still for 8.7 s, and so did its heartbeats")
    watch.asked(20.0)
    seen = watch.answered(9.0)  # the answer came before the loop was inspected
    assert seen is not None
    assert seen.startswith("this process stood still for 9.0 s")


def test_a_location_is_in_the_programs_own_code() -> None:
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
