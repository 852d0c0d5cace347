import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import webbrowser
from pathlib import Path

import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.base.files import new_directory
from pagealloc_model.base.version import __version__
from pagealloc_model.cli import main
from pagealloc_model.cli.arguments import Commands
from pagealloc_model.cli.main import build_parser

Capture = pytest.CaptureFixture[str]


def run_pagealloc(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagealloc_model.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]


def refusal(capsys: Capture, *arguments: str) -> str:
    """Stderr of a command line that must end with code 2 and one line."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("pagealloc: ")
    assert printed.err.count("\n") == 1
    return printed.err


def refused_by_parser(capsys: Capture, *arguments: str) -> str:
    """The same of one that is refused before anything runs."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("pagealloc") and said.endswith("--help\n") and said.count("\n") == 1
    return said


@pytest.mark.parametrize("command", build_parser().commands)
def test_help_has_an_example_that_parses(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    program, *words = capsys.readouterr().out.split("example:")[1].split()
    assert (program, words[0]) == ("pagealloc", command)
    assert build_parser().parse_args(words).run.__name__ == f"run_{command}"


def test_an_option_means_the_same_in_every_command() -> None:
    """Its value is called by the same word, files and directories that are written apart."""
    (added,) = (each for each in build_parser()._actions if isinstance(each, Commands))
    values: dict[str, set[object]] = {}
    for parser in added.choices.values():
        for action in (each for each in parser._actions if each.help != argparse.SUPPRESS):
            for option in {*action.option_strings} - {"-o", "--output"}:
                word = re.split(r"\W", str(action.metavar))[0]
                values.setdefault(option, set()).add(word)
    assert values["--patch"] == values["--base"] == {"FIELD"}
    assert {option for option, named in values.items() if len(named) > 1} == set()


def test_every_command_is_in_the_help(checkout: Path) -> None:
    texts = [file.read_text() for file in (checkout / "pagealloc_model/cli").glob("*.py")]
    written = {name for text in texts for name in re.findall(r"(?m)^def run_(\w+)", text)}
    assert written == {*build_parser().commands}


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "required: COMMAND"),
        ("nonsense", "no command 'nonsense'"),
        ("valdate kbuild", "no command 'valdate'; did you mean validate?"),
        ("info", "required: PATH"),
        ("compare x", "required: --patch"),
        ("replay x --rules 2.4", "2.4"),
        ("replay x --rules 7.2,nonsense=true", "nonsense"),
        ("compare kbuild --patch pcp_batch=3 --width 5", "--width 5; see pagealloc compare --help"),
        ("explore kbuild --port 99999999", "no port; give 1 to 65535"),
        ("explore kbuild --port -1", "no port"),
        ("stacks kbuild --top -1", "give 1 or more"),
        ("judge --kernel-source x --operations 0", "'0' is not a number of operations"),
        ("validate x --patch a.patch", "for a patch to the tree --tree-patch FILE"),
        ("replay x --patch pcp_batch=3", "for FIELD=VALUE use replay --set"),
        ("fleet --base a b --patch c d", "'a' is no FIELD=VALUE; for the hosts use --base-hosts"),
        ("fleet --patch-hosts a --patch-set pcp_batch=3", "use --patch FIELD=VALUE"),
        ("trim x y --events 5", "use --most-events N"),
        ("synth exit -o x --set pages=5", "use --number NUMBER=VALUE"),
    ],
)
def test_wrong_usage_is_refused_in_one_line(arguments: str, said: str, capsys: Capture) -> None:
    assert said in refused_by_parser(capsys, *arguments.split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("replay kbuild --set pcp_bach=3", "did you mean pcp_batch"),
        ("replay kbuild --set fit_test=high", "did you mean ownership.fit_test"),
        ("replay kbuild --set zzzzzzzz=1", "fields: highatomic_gate_order, "),
        ("compare kbuild --patch ''", "--patch: names no setting"),
        ("post kbuild --patch ' , '", "--patch: names no setting"),
        ("experiment nosuch -o x", "or a shipped plan ("),
        ("replay kbuild --set pcp_batch", "field=value"),
        ("compare kbuild --patch nonsense=1", "no field 'nonsense'"),
        ("replay kbuild --set pcp_batch=many", "whole number"),
        ("compare kbuild --patch pcp_batch=0", "outside 1 to"),
        (
            "compare kbuild --patch pcp_high_min=100 --patch pcp_high_max=10",
            "pcp_high_min=100 is above pcp_high_max=10",
        ),
        ("info no-such-recording", "no-such-recording: does not exist"),
        ("validate no-such-recording", "no-such-recording: does not exist"),
        ("info kbulid", "did you mean kbuild?"),
        ("info empty", "without perf.data"),
        ("info damaged", "damaged"),
        ("explore kbuild --no-browser --state damaged/state.json", "this is no state"),
        ("lab nosuch", "lab takes no 'nosuch'"),
        ("lab ''", "lab takes no ''"),
        ("synth exit -o out --number pages=many", "write NUMBER=VALUE, whole numbers"),
        ("sweep kbuild --vary pcp_batch=1,2 --points 2 --one-at-a-time", "give one of them"),
        ("fleet", "a fleet needs hosts"),
        ("stacks kbuild --patch pcp_batch=3", "only holds differ by policy"),
        ("validate kbuild --brief --json", "--brief is one line"),
        ("post --reply highatomic kbuild", "compares nothing"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_line(
    arguments: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("empty", "damaged"):
        Path(name).mkdir()
    Path("damaged/perf.data").write_bytes(b"PERFILE2" + b"\0" * 20)
    Path("damaged/state.json").write_text("{}", encoding="utf-8")
    assert said in refusal(capsys, *shlex.split(arguments))


def test_what_doctor_prints_fits_into_a_mail(capsys: Capture) -> None:
    main(["doctor"])
    for line in capsys.readouterr().out.splitlines():
        assert len(line) < 80 or len(line[20:].split()) == 1


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom pagealloc_model.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'pandas', 'numba', 'plotly') if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines()[-1] == "[]"


def test_info_and_compare_begin_with_the_verdict(capsys: Capture) -> None:
    assert main(["info", "kbuild"]) == 0
    brief = capsys.readouterr().out
    verdict = (
        "kbuild: usable for predictions, with doubts (see below: memory and CPUs); nothing is "
    )
    assert " ".join(brief.split()).startswith(verdict)
    assert "Next: pagealloc validate kbuild" in brief and "pcp_decays" not in brief
    assert main(["info", "kbuild", "--full"]) == 0
    full = capsys.readouterr().out
    assert full.startswith(brief.partition("\n\n")[0]) and "pcp_decays" in full
    assert main(["compare", "kbuild", "--patch", "pcp_batch=15"]) == 0
    brief = capsys.readouterr().out
    assert brief.startswith("kbuild, pcp_batch=15: ") and len(brief.splitlines()) <= 40
    assert "Next: " in brief and "Sign rule" not in brief


def test_a_result_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with (
        pytest.raises(UsageError, match="cannot be written"),
        new_directory(tmp_path / "out") as partial,
    ):
        (partial / "a.csv").write_text("1\n")
        (partial / "no" / "such.csv").write_text("2\n")
    assert list(tmp_path.iterdir()) == []
    with new_directory(tmp_path / "deep" / "out") as partial:
        (partial / "a.csv").write_text("1\n")
    assert (tmp_path / "deep" / "out" / "a.csv").read_text() == "1\n"


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UsageError, match="exists"), new_directory(tmp_path / "out"):
        pass
    assert (tmp_path / "out").read_text() == "mine"


def test_lab_as_root_and_without_a_browser(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_browser() -> None:
        raise webbrowser.Error

    opened = []
    monkeypatch.setattr(
        "pagealloc_model.notebook.lab.open_lab",
        lambda *given, **named: opened.append((given, named)),
    )
    monkeypatch.setattr(webbrowser, "get", no_browser)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    main(["lab", "--", "--port", "1"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(webbrowser, "get", lambda: object())
    main(["lab", "--", "--port", "1"])
    first, kept = checkout / "notebooks" / "00_start_here.ipynb", {"keeps_outputs": False}
    assert opened == [
        ((first, ["--allow-root", "--no-browser", "--port", "1"]), kept),
        ((first, ["--port", "1"]), kept),
    ]


def test_bench_without_a_checkout_says_so(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pagealloc_model.cli.pages.PROGRAM", tmp_path / "bench.py")
    assert "benchmarks come with a checkout" in refusal(capsys, "bench")


SLOW = """
import argparse, sys, time
from pathlib import Path
from pagealloc_model.base.files import new_directory
from pagealloc_model.cli import main
def slow(options):
    with new_directory(Path(sys.argv[1])):
        print("begun", flush=True)
        time.sleep(60)
sys.modules["pagealloc_model.cli.main"]._parsed = lambda words: argparse.Namespace(run=slow)
sys.exit(main())
"""


def test_a_command_that_is_terminated_leaves_nothing_half_written(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW, str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        assert list(tmp_path.iterdir())
        process.terminate()
        assert process.wait(30) == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
