"""The plugin that runs tests in processes, in runs of its own."""

from pathlib import Path

import pytest

from tests.workers import ONE_PORT, units

pytestmark = pytest.mark.programs

pytest_plugins = ["pytester"]

FLAGS = ("-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "tests.workers", "--workers", "2")


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    return pytester


def test_each_test_runs_once_in_a_fork_of_one_collection(run: pytest.Pytester) -> None:
    run.makeconftest(
        """
        import os
        import warnings

        COLLECTED = os.getpid()

        def pytest_terminal_summary(terminalreporter):
            passed = terminalreporter.stats["passed"]
            terminalreporter.write_line(f"processes: {len({each.user_properties[0] for each in passed})}")
        """
    )
    run.makepyfile(
        **dict.fromkeys(
            ("test_one", "test_two"),
            """
            import os
            import warnings
            import pytest

            ENTERED = []

            @pytest.fixture(scope="module")
            def shared(request):
                ENTERED.append("entered")
                yield
                print("torn down", request.node.name)

            def test_a(shared, tmp_path, record_property, pytestconfig):
                (plugin,) = [each for each in pytestconfig.pluginmanager.get_plugins() if hasattr(each, "COLLECTED")]
                assert plugin.COLLECTED == os.getppid()
                record_property("process", os.getpid())
                warnings.warn("a warning")

            def test_b(shared):
                assert ENTERED == ["entered"]
                raise AssertionError("not what it was")
            """,
        )
    )
    result = run.runpytest_subprocess(*FLAGS, "-rA", timeout=100)
    result.assert_outcomes(passed=2, failed=2, warnings=2)
    result.stdout.fnmatch_lines(["processes: 2"])
    for name in ("test_one.py", "test_two.py"):
        result.stdout.fnmatch_lines(
            [f"torn down {name}", f"{name}::test_a", f"FAILED {name}::test_b - Asser*not what it was"]
        )


def test_what_ends_its_process_fails_and_the_others_run(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import os

        def test_a(): pass
        def test_b(): os._exit(3)
        def test_c(): pass
        def test_d(): os.kill(os.getpid(), 9)
        """
    )
    result = run.runpytest_subprocess(*FLAGS, timeout=100)
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["the process of this test has ended with the status 3"])
    result.stdout.fnmatch_lines(["the process of this test has ended with the status -9"])


def test_the_first_failure_ends_the_run(run: pytest.Pytester) -> None:
    run.makepyfile(
        "import pytest\n@pytest.mark.slow\n@pytest.mark.parametrize('n', range(500))\ndef test_it(n): assert n > 300"
    )
    run.makeini("[pytest]\nmarkers = slow: one by one")
    result = run.runpytest_subprocess(*FLAGS, "-x", timeout=100)
    assert result.parseoutcomes()["failed"] < 100
    result.stdout.fnmatch_lines(["*stopping after 1 failures*"])


def test_the_long_ones_come_first_and_files_stay_whole(tmp_path: Path) -> None:
    texts = {
        "tests/pipeline/test_a.py": "pytestmark = pytest.mark.spark",
        "tests/pipeline/test_b.py": "pytestmark = pytest.mark.spark",
        "tests/pipeline/test_c.py": "",
        "tests/broker/test_a.py": "pytest.mark.programs",
        "tests/broker/test_b.py": "pytestmark = [pytest.mark.broad, pytest.mark.together]",
        "tests/broker/test_c.py": "from tests.sampling import slow",
        ONE_PORT: "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    files = [name for name in sorted(texts) for _ in range(2)]
    together = [[files[position] for position in unit] for unit in units(tmp_path, files)]
    assert together[0] == [ONE_PORT] * 2
    assert together[1] == ["tests/pipeline/test_a.py"] * 2 + ["tests/pipeline/test_b.py"] * 2
    one_by_one = ["tests/broker/test_a.py", "tests/broker/test_c.py"]
    assert sorted(together[2:-1]) == sorted(
        [[name] for name in one_by_one for _ in range(2)] + [["tests/broker/test_b.py"] * 2]
    )
    assert together[-1] == ["tests/pipeline/test_c.py"] * 2
