"""Each module has tests that are found: a file of its name in the mirrored folder, or a row in tests/SOURCES.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

#: Folders of the packages, and of their tests in `tests/`.
FOLDERS = ("broker", "client", "explain", "pipeline", "protocol")

#: Lines up to which a module needs neither.
SMALL = 100


def modules(root: Path) -> dict[str, Path]:
    """The modules of the packages, and for each the test file that has its name."""
    found = {}
    for folder in FOLDERS:
        for package in sorted((root / folder).glob("barnabas*")):
            for path in sorted(package.rglob("*.py")):
                mirrored = root / "tests" / folder / path.relative_to(package)
                mirror = mirrored.with_name(f"test_{path.stem.strip('_')}.py")
                if path.name != "__init__.py":
                    found[path.relative_to(root).as_posix()] = mirror
    return found


def rows(page: str) -> list[tuple[str, list[str]]]:
    """The modules of the page, with the test files of each."""
    found, folder = [], ""
    for line in page.splitlines():
        if heading := re.fullmatch(r"## `(\S+)`", line):
            folder = heading[1]
        elif row := re.fullmatch(r"\| `(\w+\.py)` \| (.*) \|", line):
            found.append((f"{folder}/{row[1]}", re.findall(r"`(\S+\.py)`", row[2])))
    return found


def mistakes(root: Path, page: str) -> list[str]:
    """What a reader of the page would miss, and what is in it that does not exist."""
    mirrors, listed = modules(root), rows(page)
    names = [module for module, _ in listed]
    wrong = [f"{module} has two rows" for module in sorted(set(names)) if names.count(module) > 1]
    for module, mirror in mirrors.items():
        if mirror.exists() or module in names or len((root / module).read_text("utf-8").splitlines()) <= SMALL:
            continue
        wrong.append(f"{module} has neither {mirror.relative_to(root).as_posix()} nor a row")
    for module, files in listed:
        if module not in mirrors:
            wrong.append(f"{module} does not exist")
        elif mirrors[module].exists():
            wrong.append(f"{module} needs no row: it has {mirrors[module].relative_to(root).as_posix()}")
        if not 1 <= len(files) <= 3:
            wrong.append(f"{module} has {len(files)} test files: name one to three")
        wrong += [
            f"{module} names {file}, which does not exist" for file in files if not (root / "tests" / file).is_file()
        ]
    return wrong


def test_each_module_has_tests_that_are_found() -> None:
    page = (ROOT / "tests" / "SOURCES.md").read_text("utf-8")
    assert mistakes(ROOT, page) == [], "name the test file as the module, or change its row in tests/SOURCES.md"


def test_the_page_has_each_module_of_which_no_test_has_the_name(tmp_path: Path) -> None:
    for path, lines in {
        "broker/barnabas_broker/storage/log.py": 101,
        "broker/barnabas_broker/storage/scan.py": 101,
        "broker/barnabas_broker/storage/disk.py": 101,
        "broker/barnabas_broker/storage/small.py": 100,
        "broker/barnabas_broker/__main__.py": 101,
        "tests/broker/storage/test_log.py": 1,
        "tests/broker/test_main.py": 1,
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x\n" * lines)
    head = "## `broker/barnabas_broker/storage`\n"
    right = (
        f"{head}| `scan.py` | `broker/storage/test_log.py`: damage |\n| `disk.py` | `broker/storage/test_log.py` |\n"
    )
    assert mistakes(tmp_path, right) == []
    stale = "| `log.py` | `broker/storage/test_log.py` |\n| `gone.py` | `broker/test_main.py` |\n"
    wrong = f"{head}| `scan.py` | `broker/test_scan.py` |\n| `scan.py` | no test |\n{stale}"
    storage = "broker/barnabas_broker/storage"
    assert mistakes(tmp_path, wrong) == [
        f"{storage}/scan.py has two rows",
        f"{storage}/disk.py has neither tests/broker/storage/test_disk.py nor a row",
        f"{storage}/scan.py names broker/test_scan.py, which does not exist",
        f"{storage}/scan.py has 0 test files: name one to three",
        f"{storage}/log.py needs no row: it has tests/broker/storage/test_log.py",
        f"{storage}/gone.py does not exist",
    ]
