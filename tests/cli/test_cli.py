import csv
import json
import os
import re
import signal
import subprocess
import sys
import webbrowser
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.base.version import __version__
from pagealloc_model.cli import main
from pagealloc_model.cli.arguments import json_text, policy_of, write_directory
from pagealloc_model.cli.main import build_parser
from pagealloc_model.cli.pages import lab_command, writable_notebooks
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy, policy_settings
from tests.small_recordings import write_recording

COMMANDS = (
    "doctor",
    "record",
    "import",
    "info",
    "validate",
    "replay",
    "compare",
    "stacks",
    "sweep",
    "fleet",
    "experiment",
    "synth",
    "trim",
    "notebook",
    "post",
    "lab",
    "bench",
)
METRIC_KEYS = {"metric", "scope", "measured", "predicted", "error", "unit"}
ROW_KEYS = {"metric", "scope", "base", "patch", "change", "unit", "better"}

Capture = pytest.CaptureFixture[str]
Shipped = Callable[[str], Path]


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


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"pagealloc {command}" in capsys.readouterr().out.split("example:")[1]


def test_examples_parse(capsys: Capture) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        example = capsys.readouterr().out.split("example:")[1].split()
        assert callable(build_parser().parse_args(example[1:]).run)


def test_version(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["info"],
        ["compare", "x"],
        ["replay", "x", "--rules", "2.4"],
        ["replay", "x", "--rules", "7.2,nonsense=true"],
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("pagealloc") and said.count("\n") == 1
    assert said.endswith("--help\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay", "kbuild", "--set", "pcp_bach=3"], "did you mean pcp_batch"),
        (["replay", "kbuild", "--set", "fit_test=high"], "did you mean ownership.fit_test"),
        (["replay", "kbuild", "--set", "zzzzzzzz=1"], "fields: highatomic_gate_order, "),
        (["compare", "kbuild", "--patch", ""], "--patch: names no setting"),
        (["post", "kbuild", "--patch", " , "], "--patch: names no setting"),
        (["experiment", "nosuch", "-o", "x"], "or a shipped plan ("),
    ],
)
def test_one_line_says_what_to_write_instead(
    arguments: list[str], said: str, capsys: Capture
) -> None:
    assert main(arguments) == 2
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1


def test_a_damaged_state_is_named(tmp_path: Path, capsys: Capture) -> None:
    state = tmp_path / "state.json"
    state.write_text("{}", encoding="utf-8")
    assert main(["explore", "kbuild", "--no-browser", "--state", str(state)]) == 2
    assert capsys.readouterr().err.startswith(f"pagealloc: {state}: this is no state")


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


def test_info_waits_neither_for_pandas_nor_for_the_replay() -> None:
    code = (
        "import sys; from pagealloc_model.cli.main import main; main(['info', 'kbuild']); "
        "print([m for m in ('pandas', 'pagealloc_model.predicted.replay') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("command", ["info", "validate", "replay"])
def test_a_missing_recording_is_one_line(command: str, capsys: Capture) -> None:
    assert "no-such-recording: does not exist" in refusal(capsys, command, "no-such-recording")


def test_a_directory_without_events_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    assert "without perf.data" in refusal(capsys, "info", str(tmp_path))


def test_a_damaged_recording_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "perf.data").write_bytes(b"PERFILE2" + b"\0" * 20)
    assert str(tmp_path) in refusal(capsys, "info", str(tmp_path))


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("pcp_batch", "field=value"),
        ("nonsense=1", "no field 'nonsense'"),
        ("pcp_batch=many", "whole number"),
        ("pcp_batch=0", "outside 1 to"),
    ],
)
def test_a_bad_setting_is_one_line(setting: str, complaint: str, capsys: Capture) -> None:
    assert complaint in refusal(capsys, "replay", "kbuild", "--set", setting)
    assert complaint in refusal(capsys, "compare", "kbuild", "--patch", setting)


def test_info_as_text_and_json(shipped: Shipped, capsys: Capture) -> None:
    path = str(shipped("kbuild"))
    assert main(["info", path]) == 0
    text = capsys.readouterr().out
    assert "kmem:mm_page_alloc " in text
    rules = text[text.index("\nrules\n") :]
    assert max(len(line) for line in rules.splitlines()) <= 72
    assert "  rules 6.18 from kernel release 6.18.44" in rules
    assert "    free_batched = false\n" in rules
    assert "  inferred: " in rules
    assert main(["info", path, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["recording"] == "kbuild"
    assert described["events"]["kmem:mm_page_alloc"] > 0
    assert described["rules"].startswith("rules 6.18 from")
    rows = {row["rule"]: row for row in described["rule_evidence"]}
    assert set(rows) == set(KernelRules.rule_names())
    assert set(rows["free_batched"]) == {"rule", "value", "standing", "line", "check"}


def test_info_of_a_kernel_without_rules_says_so(tmp_path: Path, capsys: Capture) -> None:
    path = str(write_recording(tmp_path / "old", release="4.19.1"))
    assert main(["info", path]) == 0
    assert "older than the oldest" in capsys.readouterr().out
    assert main(["info", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rule_evidence"] == []


def test_single_rules_can_be_changed(shipped: Shipped, capsys: Capture) -> None:
    path = str(shipped("kbuild"))
    assert main(["replay", path, "--rules", "6.18,free_batched=true", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rules"] == "6.18,free_batched=true"
    assert main(["replay", path, "--rules", "evidence"]) == 0
    assert "has seen part of it" in capsys.readouterr().out


def test_validate_as_text_and_json(shipped: Shipped, capsys: Capture) -> None:
    path = str(shipped("kbuild"))
    assert main(["validate", path]) == 0
    text = capsys.readouterr().out
    assert "free pages" in text
    assert max(len(line) for line in text.splitlines()) <= 72
    assert main(["validate", path, "--json"]) == 0
    validation = json.loads(capsys.readouterr().out)
    keys = "recording kernel rules policy start_state events lost orphan_frees divergences metrics"
    assert set(keys.split()) <= set(validation)
    assert all(set(row) >= METRIC_KEYS for row in validation["metrics"])


def test_replay_writes_tables_once(shipped: Shipped, tmp_path: Path, capsys: Capture) -> None:
    path, out = str(shipped("kbuild")), tmp_path / "predicted"
    command = ["replay", path, "--set", "pcp_batch=31", "-o", str(out)]
    assert main(command) == 0
    assert "pcp_batch=31" in capsys.readouterr().out
    with (out / "free_pages.csv").open() as file:
        first = next(csv.DictReader(file))
    assert set(first) == {"time_ns", "node", "zone", "order", "migratetype", "buddies", "pages"}
    assert json.loads((out / "provenance.json").read_text())["changed"] == {"pcp_batch": 31}
    assert os.listdir(tmp_path) == ["predicted"]
    assert "is not empty" in refusal(capsys, *command)


def test_replay_as_json(shipped: Shipped, capsys: Capture) -> None:
    assert main(["replay", str(shipped("kbuild")), "--rules", "7.2", "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["rules"] == "7.2"
    assert {"free_pages", "pageblocks", "pcp", "divergences"} <= set(described)


@pytest.mark.parametrize("style", ["text", "mmtests"])
def test_compare_as_text(style: str, shipped: Shipped, capsys: Capture) -> None:
    path = str(shipped("kbuild"))
    assert main(["compare", path, "--patch", "pcp_batch=31", "--format", style]) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    assert max(len(line) for line in text.splitlines()) <= 72
    for part in ("Sign rule", "pcp_batch", __version__, "kbuild"):
        assert part in text


def test_compare_for_scripts(shipped: Shipped, capsys: Capture) -> None:
    path = str(shipped("kbuild"))
    command = ["compare", path, path, "--base", "pcp_batch=63", "--patch", "pcp_batch=31"]
    assert main([*command, "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    assert {"base", "patch", "rows"} <= set(compared)
    assert all(set(row) >= ROW_KEYS | {"recording"} for row in compared["rows"])
    assert main([*command, "--format", "csv"]) == 0
    rows = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert len(rows) == len(compared["rows"])


def test_trim_makes_a_smaller_recording(shipped: Shipped, tmp_path: Path, capsys: Capture) -> None:
    short = str(tmp_path / "short")
    command = ["trim", str(shipped("kbuild")), short, "--events", "1000", "--anonymise"]
    assert main(command) == 0
    assert "1,000 events in" in capsys.readouterr().out
    assert short in refusal(capsys, *command)
    assert main(["info", short]) == 0


def test_no_progress_without_a_terminal(shipped: Shipped) -> None:
    answer = run_pagealloc("replay", str(shipped("kbuild")))
    assert (answer.returncode, answer.stderr) == (0, "")


def test_a_closed_pipe_is_quiet(shipped: Shipped) -> None:
    command = f"{sys.executable} -m pagealloc_model.cli replay {shipped('kbuild')} --json"
    pipe = f"({command}; echo $? >&2) | head -c 1"
    answer = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True)
    assert answer.stderr == "141\n"


def test_a_result_directory_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        write_directory(tmp_path / "out", {"a.csv": "1\n", "no/such/place.csv": "2\n"})
    assert list(tmp_path.iterdir()) == []
    write_directory(tmp_path / "deep" / "out", {"a.csv": "1\n"})
    assert (tmp_path / "deep" / "out" / "a.csv").read_text() == "1\n"


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        write_directory(tmp_path / "out", {"a.csv": ""})
    assert (tmp_path / "out").read_text() == "mine"


def test_json_has_no_nan() -> None:
    assert json.loads(json_text({"a": float("nan"), "b": [float("inf"), 1]})) == {
        "a": None,
        "b": [None, 1],
    }


def test_lab_as_root_and_without_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_browser() -> None:
        raise webbrowser.Error

    monkeypatch.setattr(webbrowser, "get", no_browser)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    command = lab_command(Path("x.ipynb"), ["--port", "1"])
    assert "--LabApp.news_url=None" in command
    assert {"--allow-root", "--no-browser"} <= set(command)
    assert command[-2:] == ["--port", "1"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(webbrowser, "get", lambda: object())
    assert not {"--allow-root", "--no-browser"} & set(lab_command(Path("x.ipynb"), []))


def test_lab_becomes_jupyterlab(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(os, "execv", lambda path, command: started.append((path, command)))
    main(["lab", "--", "--port", "1"])
    path, command = started[0]
    assert path == sys.executable
    assert command[1:4] == ["-P", "-m", "jupyterlab"]
    assert command[-2:] == ["--port", "1"]


def test_lab_in_a_checkout_opens_the_notebooks_in_place(checkout: Path, tmp_path: Path) -> None:
    assert writable_notebooks(tmp_path) == checkout / "notebooks"


def test_lab_elsewhere_copies_the_notebooks_once(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site" / "notebooks"
    installed.mkdir(parents=True)
    for notebook in (checkout / "notebooks").glob("*.ipynb"):
        (installed / notebook.name).write_bytes(notebook.read_bytes())
    monkeypatch.setattr("pagealloc_model.cli.pages.shipped_notebooks", lambda: installed)
    copies = writable_notebooks(tmp_path)
    assert copies == tmp_path / "notebooks"
    (copies / "00_start_here.ipynb").write_text("mine")
    writable_notebooks(tmp_path)
    assert (copies / "00_start_here.ipynb").read_text() == "mine"


def test_policy_fields_are_in_the_help(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["replay", "--help"])
    shown = capsys.readouterr().out
    for name in policy_settings():
        assert re.search(rf"^  {re.escape(name)}$", shown, re.MULTILINE)


def test_bench_without_a_checkout_says_so(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("pagealloc_model.cli.pages.PROGRAM", tmp_path / "bench.py")
    assert "benchmarks come with a checkout" in refusal(capsys, "bench")


def complaint(capsys: Capture, *arguments: str) -> str:
    """Stderr of a command line that argparse refuses: code 2 and one line."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


def test_near_names_are_told(capsys: Capture) -> None:
    assert "no command 'valdate'; did you mean validate?" in complaint(capsys, "valdate", "kbuild")
    assert "did you mean kbuild?" in refusal(capsys, "info", "kbulid")
    assert "--width 5; see pagealloc compare --help" in complaint(
        capsys, "compare", "kbuild", "--patch", "pcp_batch=3", "--width", "5"
    )


def test_a_policy_may_be_given_in_parts_and_as_it_is_printed() -> None:
    for words in (
        ["pcp_batch=3,costly_order=2"],
        ["pcp_batch=3 costly_order=2"],
        ["pcp_batch=3", "costly_order=2"],
    ):
        assert policy_of("--patch", words) == Policy(pcp_batch=3, costly_order=2)
    with pytest.raises(PolicyError, match="pcp_batch is given twice"):
        policy_of("--patch", ["pcp_batch=3", "pcp_batch=4"])


def test_bounds_that_cross_are_refused(capsys: Capture) -> None:
    words = ["pcp_high_min=100", "pcp_high_max=10"]
    assert "pcp_high_min=100 is above pcp_high_max=10" in refusal(
        capsys, "compare", "kbuild", *(each for word in words for each in ("--patch", word))
    )


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["explore", "kbuild", "--port", "99999999"], "no port; give 1 to 65535"),
        (["explore", "kbuild", "--port", "-1"], "no port"),
        (["stacks", "kbuild", "--top", "-1"], "give 1 or more"),
    ],
)
def test_numbers_that_cannot_be_are_refused_first(
    command: list[str], says: str, capsys: Capture
) -> None:
    assert says in complaint(capsys, *command)


def test_what_is_for_jupyterlab_stands_behind_two_dashes(capsys: Capture) -> None:
    assert "lab takes no 'nosuch'" in refusal(capsys, "lab", "nosuch")
    assert "lab takes no ''" in refusal(capsys, "lab", "")


def test_what_replay_and_doctor_print_fits_into_a_mail(capsys: Capture) -> None:
    assert main(["replay", "kbuild"]) == 0
    assert max(len(line) for line in capsys.readouterr().out.splitlines()) <= 72
    main(["doctor"])
    for line in capsys.readouterr().out.splitlines():
        assert len(line) < 80 or len(line[20:].split()) == 1


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
