"""construct is imported without modules that it rarely uses, and has them when it uses them."""

import subprocess
import sys

from tests.wire import PATIENCE

RARE = ("hashlib", "pdb", "pickle", "platform")


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)


def test_what_construct_rarely_uses_is_imported_when_it_uses_it() -> None:
    run(
        "import sys, barnabas_protocol, construct\n"
        f"assert sys.modules.keys().isdisjoint({RARE})\n"
        "assert construct.core.pickle.loads(construct.core.pickle.dumps(1)) == 1\n"
        "assert construct.core.hashlib.sha1(b'').digest_size == 20\n"
        "assert construct.debug.pdb.post_mortem\n"
        "assert construct.lib.py3compat.platform.machine()\n"
        "assert construct.lib.ONWINDOWS is (sys.platform == 'win32')"
    )


def test_a_program_imports_the_modules_themselves() -> None:
    run(
        "import barnabas_protocol, hashlib, pdb, pickle, platform\n"
        "from types import ModuleType\n"
        "assert {type(one) for one in (hashlib, pdb, pickle, platform)} == {ModuleType}\n"
        "assert platform.system() in ('Linux', 'Darwin', 'Windows')"
    )


def test_modules_that_are_imported_already_stay() -> None:
    run(
        "import hashlib, pickle, sys\n"
        "before = hashlib, pickle\n"
        "import barnabas_protocol, construct\n"
        "assert (sys.modules['hashlib'], sys.modules['pickle']) == before\n"
        "assert construct.core.hashlib is hashlib"
    )
