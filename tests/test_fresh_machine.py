"""What a machine that never saw this package meets: missing packages, skips, any order of tests."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from pagealloc_model.cli import main
from pagealloc_model.recording.recording import open_recording

Run = Callable[..., subprocess.CompletedProcess[str]]

NEEDED = ("bash", "id", "mktemp", "rm", "cat", "env", "true", "grep", "awk", "sort")
APT_GET = """#!/bin/bash
echo "$*" >>"$LOG"
last=${!#}
case "$*" in
update*) exit "${UPDATE_FAILS:-0}" ;;
*--simulate*)
    [[ $last != "$LACKING" ]] || exit 100
    [[ $last != "$UPGRADING" ]] || echo "Inst linux-libc-dev [6.1.187-1] (6.1.192-2 Debian [amd64])"
    echo "Inst $last (1.0 Debian [amd64])" ;;
*--print-uris*) echo "'http://x/chromium_1_all.deb' chromium_1_all.deb 2500000 " ;;
esac
"""


@pytest.fixture
def system_packages(checkout: Path, tmp_path: Path) -> Run:
    """Runs .ci/system-packages where what is not `there`, and the kernels' sources, are missing."""
    tools = tmp_path / "bin"
    tools.mkdir()

    def run(*there: str, apt: bool = True, **told: str) -> subprocess.CompletedProcess[str]:
        for name in ("python3", "perf", "gcc", *there):
            (tools / name).write_text("#!/bin/bash\n")
        (tools / "sudo").write_text('#!/bin/bash\nshift\nexec "$@"\n')
        for name in NEEDED:
            if not (tools / name).exists():
                (tools / name).symlink_to(str(shutil.which(name)))
        if apt:
            (tools / "apt-get").write_text(APT_GET)
        for name in tools.iterdir():
            if not name.is_symlink():
                name.chmod(0o755)
        environment = {"PATH": str(tools), "LOG": str(tmp_path / "log"), **told}
        return subprocess.run(
            [str(shutil.which("bash")), str(checkout / ".ci" / "system-packages")],
            env={"KERNEL_SOURCES": str(tmp_path), "LACKING": "", "UPGRADING": "", **environment},
            capture_output=True,
            text=True,
            check=True,
        )

    return run


def asked(tmp_path: Path) -> list[str]:
    """What apt-get was asked to install, a word each, options included."""
    log = tmp_path / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    real = [line for line in lines if "--simulate" not in line and "--print-uris" not in line]
    return [word for line in real if line.startswith("install") for word in line.split()]


def test_nothing_is_asked_for_where_nothing_is_missing(
    system_packages: Run, tmp_path: Path
) -> None:
    for series in ("6.1", "6.12"):
        (tmp_path / f"linux-source-{series}.tar.xz").touch()
    done = system_packages("chromium", "trace-cmd")
    assert (done.stdout, done.stderr) == ("", "")
    assert not (tmp_path / "log").exists()


def test_what_is_missing_is_listed_with_sizes_and_nothing_else_changes(
    system_packages: Run, tmp_path: Path
) -> None:
    done = system_packages()
    assert re.search(r"^  chromium +2\.5 MB$", done.stderr, re.MULTILINE)
    assert "MB\nto be fetched: " in done.stderr
    words = asked(tmp_path)
    assert {"chromium", "trace-cmd", "--no-upgrade", "--no-remove"} <= set(words)
    pins = next(word for word in words if word.startswith("Dir::Etc::preferences="))
    assert pins and not {"perf", "gcc", "linux-perf"} & set(words)


@pytest.mark.parametrize("told", [{"LACKING": "chromium"}, {"UPGRADING": "chromium"}])
def test_what_is_not_to_be_had_or_would_upgrade_is_named_and_left(
    system_packages: Run, tmp_path: Path, told: dict[str, str]
) -> None:
    done = system_packages(**told)
    assert "not installed (apt has none that fits what is installed): chromium;" in done.stderr
    assert "trace-cmd" in asked(tmp_path) and "chromium" not in asked(tmp_path)


@pytest.mark.parametrize("told", [{"apt": False}, {"UPDATE_FAILS": "100"}])
def test_without_apt_or_network_it_says_what_is_missing(
    system_packages: Run, tmp_path: Path, told: dict[str, str]
) -> None:
    done = system_packages(**told)
    assert re.search(r"not installed.*: chromium trace-cmd\b.*are skipped", done.stderr)
    assert asked(tmp_path) == []


SUITE = {
    "test_one.py": "def test_a(): pass\ndef test_b(): pass\ndef test_c(): pass\n",
    "test_two.py": "def test_d(): pass\ndef test_e(): pass\n",
    "test_skips.py": """import pytest
def test_source(): pytest.skip("/usr/src has no linux-source-6.12 (see .ci/system-packages)")
def test_root(): pytest.skip("root may read anything")
@pytest.mark.xfail
def test_fails(): assert False
""",
}


RUNS = """
import sys, pytest
for words in sys.argv[1:]:
    print("RUN", pytest.main(words.split()))
"""


@pytest.fixture
def suite(checkout: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """Runs pytest with this project's conftest on a few small files of tests, in one process."""
    for name, content in SUITE.items():
        (tmp_path / name).write_text(content)
    always = f"-c {os.devnull} --rootdir {tmp_path} -p no:cacheprovider -p tests.conftest -rs"

    def run(*runs: str, ci: str = "") -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", RUNS, *(f"{always} {words}" for words in runs)],
            cwd=tmp_path,
            env=os.environ | {"CI": ci, "PYTHONPATH": str(checkout)},
            capture_output=True,
            text=True,
            check=True,
        )
        return re.split(r"^RUN \S+\n", done.stdout, flags=re.MULTILINE)[:-1]

    return run


def test_a_skip_that_is_not_allowed_is_a_failure_in_ci(suite: Callable[..., list[str]]) -> None:
    (elsewhere,) = suite("test_skips.py")
    assert "2 skipped, 1 xfailed" in elsewhere
    for done in suite("test_skips.py", "test_skips.py -n 1", ci="true"):
        assert "1 failed, 1 skipped, 1 xfailed" in done
        assert "does not allow to skip this: /usr/src has no linux-source-6.12" in done


def test_an_order_by_chance_keeps_files_together(suite: Callable[..., list[str]]) -> None:
    orders = ["", *(f"--random-order {seed}" for seed in (1, 1, 2))]
    shown = suite(*(f"-v --no-header test_one.py test_two.py {words}" for words in orders))
    usual, once, again, other = (
        re.findall(r"^(test_\w+\.py)::(test_\w)", text, re.MULTILINE) for text in shown
    )
    assert once == again and len({tuple(each) for each in (usual, once, other)}) == 3
    for each in (once, other):
        assert sorted(each) == usual
        assert sum(a != b for (a, _), (b, _) in pairwise(each)) == 1


PERF = "        t-9     9 [001] {time}: kmem:mm_page_free: page=0x5 pfn=0x5 order=0\n"
TRACE_CMD = "             t-9     [001] {time}: mm_page_free: page=0x5 pfn=0x5 order=0\n"
FTRACE = "             t-9     [001] d..2. {time}: mm_page_free: page=0x5 pfn=0x5 order=0\n"


@pytest.mark.parametrize("seconds", [0, 9, 61, 9_999, 10_000, 31_536_000])
@pytest.mark.parametrize(
    ("line", "time"),
    [(PERF, "{:5d}.{:09d}"), (TRACE_CMD, "{:6d}.{:09d}"), (FTRACE, "{:5d}.{:06d}")],
)
def test_events_of_a_machine_of_any_age_are_read(
    tmp_path: Path, seconds: int, line: str, time: str
) -> None:
    """Those who print them pad seconds below 10,000 with blanks."""
    file = tmp_path / "events.txt"
    file.write_text(line.format(time=time.format(seconds, 250)))
    trace = open_recording(file).trace
    assert trace.time_ns.tolist() == [seconds * 10**9 + 250 * (1000 if line == FTRACE else 1)]
    assert trace.cpu.tolist() == [1]


@cache
def validated() -> str:
    """What `validate` prints in this process."""
    out = io.StringIO()
    with redirect_stdout(out):
        assert main(["validate", "xfree"]) == 0
    return out.getvalue()


@pytest.mark.parametrize("name", ["C", "tr_TR"])
def test_commands_say_the_same_under_any_locale(checkout: Path, tmp_path: Path, name: str) -> None:
    """Under C, Python is kept from choosing UTF-8; Turkish has commas and another small I."""
    if name != "C":
        charset = ("-i", name, "-f", "ISO-8859-9")
        made = subprocess.run(["localedef", *charset, tmp_path / name], capture_output=True)
        if made.returncode:
            pytest.skip(f"the locale {name} cannot be made here")
    told = {"LC_ALL": name, "LOCPATH": str(tmp_path), "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    code = "import sys; from pagealloc_model.cli import main; sys.exit(main(['validate', 'xfree']))"
    other = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, env=os.environ | told, capture_output=True
    )
    assert (other.returncode, other.stderr) == (0, b"")
    assert other.stdout.decode("iso-8859-9") == validated()
