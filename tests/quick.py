"""A verdict on an edit in about a minute: `make quick` (QUICK_ARGS="--seconds 60").

1. Files that differ from a commit (`--since`, by default HEAD), and new ones, are what changed.
2. Of the large entry points (see LARGE) the first one whose fingerprint changed is compiled. A test
   that needs another is left out when it asks for it. Small ones are compiled on first use.
3. A shipped recording is replayed by the edited kernels and, on the other core meanwhile, by those
   of the commit; whether the outcome is the same is said, and is no failure: an edit may mean to
   change it.
4. Tests that import a changed module, directly or not, are run: first the comparison with the
   oracle, with fewer scenarios and whatever the time; then files of tests by the number of imports
   between, as long as there is time. The first failure ends it. What is left out is said.

Exit status 0 if all tests that ran passed, 1 if one failed, 2 if none ran. `make test`
is what tells whether an edit is right.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.import_graph import ImportGraph, module_name

CHECKOUT = Path(__file__).resolve().parent.parent
RECORDING = "xfree"
FIRST = ("tests.allocator.test_against_oracle",)
EXAMPLES = 5  # of a property test: seconds, where a whole test takes most of a minute
SLOW = ("browser", "kernel_build", "fuzz")  # folders of tests that take more than the time there is
SKIPPED = ("test_seeded_faults", "test_notebooks", "test_wheel", "test_make_lab", "test_hooks")
"""Files of tests that install, compile or start whole programs."""
LEAST_S = 8  # seconds for tests, however long compiling took
LARGE = (
    ("pagealloc_model.allocator.events", "advance", "event loop"),
    ("pagealloc_model.diagnosis.judging", "resync", "judging of choices"),
    ("pagealloc_model.allocator.events", "advance_elastic", "event loop under pressure"),
)
"""Entry points that take more than some seconds to compile: module, name and group."""
LARGE_FUNCTIONS = 60  # an entry point that reaches more functions is large
REPLAY = f"""
import hashlib
import pagealloc_model as pm
run = pm.replay(pm.open("{RECORDING}"))
digest = hashlib.sha256()
for array in (run.log, run.places, run.final.pages, run.final.blocks, run.final.st):
    digest.update(array.tobytes())
print(digest.hexdigest())
"""


def changed_modules(since: str) -> list[str]:
    """Modules whose files differ from a commit, or are new."""
    asked = (["diff", "--name-only", since, "--"], ["ls-files", "--others", "--exclude-standard"])
    told = [
        subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True)
        for words in asked
    ]
    files = [file for done in told for file in done.stdout.splitlines()]
    return [module_name(Path(file)) for file in files if file.endswith(".py")]


def chosen_tests(graph: ImportGraph, changed: list[str]) -> list[str]:
    """Modules of tests that reach a changed module, those to run first in front."""
    distances = graph.distances(changed)
    reached = []
    for name in distances:
        *folders, last = name.split(".")
        if last.startswith("test_") and last not in SKIPPED and not set(folders) & set(SLOW):
            reached.append(name)
    return sorted(reached, key=lambda name: (name not in FIRST, distances[name], name))


def compiled() -> str:
    """Compile the first group of large kernels that the edit touches; how it went, "" for none."""
    from pagealloc_model.base import jit
    from pagealloc_model.cli.compile_kernels import compile_kernel

    for module, name, group in LARGE:
        kernel = getattr(import_module(module), name)
        file = f"{jit.entry_name(kernel)}-{jit.entry_fingerprint(kernel)}-*"
        if not any(jit.kernels_directory().glob(file)):
            return f"{group}: {compile_kernel(group)}"
    return ""


def replayed(sources: Path) -> str:
    """Hash of the outcome of a shipped recording's literal replay by a copy of the package."""
    environment = os.environ | {"PYTHONPATH": str(sources)}
    command = [sys.executable, "-c", REPLAY]
    return subprocess.check_output(command, cwd=sources, env=environment, text=True)


def replayed_at(commit: str) -> str:
    """The same by the package as it was at a commit."""
    with tempfile.TemporaryDirectory(prefix="pagealloc-quick-") as made:
        parts = ("pagealloc_model", f"data/{RECORDING}")
        archive = subprocess.check_output(["git", "archive", commit, *parts], cwd=CHECKOUT)
        subprocess.run(["tar", "-x", "-C", made], input=archive, check=True)
        return replayed(Path(made))


class InTime:
    """A plugin for pytest: fewer examples, no large compilation, an end.

    Args:
        until: when no test is begun any more, of `time.monotonic`.
    """

    def __init__(self, until: float) -> None:
        self.until = until
        self.running = ""
        self.left_out: dict[str, set[str]] = {}
        self.passed = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Let property tests try a few examples."""
        from hypothesis import settings

        for item in items:
            function: Any = getattr(item, "obj", None)
            given = getattr(function, "_hypothesis_internal_use_settings", None)
            if given is not None:
                few = settings(given, max_examples=min(EXAMPLES, given.max_examples))
                function._hypothesis_internal_use_settings = few

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin nothing after the end."""
        self.running = module_name(item.path.relative_to(CHECKOUT))
        if time.monotonic() > self.until and self.running not in FIRST:
            self.leave_out("no time left")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed += report.when == "call" and report.passed

    def leave_out(self, why: str) -> None:
        """Skip the test that is running, and remember why."""
        self.left_out.setdefault(why, set()).add(self.running)
        pytest.skip(why)

    def refuse_to_compile(self) -> None:
        """Leave out tests that call a large entry point that is not on disk."""
        from pagealloc_model.base.jit import cache
        from pagealloc_model.base.jit.digest import function_digest

        load = cache.EntryCache.load_overload

        def load_or_leave(cache: Any, sig: Any, context: Any) -> Any:
            found = load(cache, sig, context)
            if found is None:
                reached: list[Any] = []
                function_digest(cache.function, lambda each: reached.append(each) or "")
                if len(reached) > LARGE_FUNCTIONS:
                    self.leave_out(f"{cache.function.__name__} is not compiled")
            return found

        cache.EntryCache.load_overload = load_or_leave  # type: ignore[method-assign]


def main() -> int:
    """Compile, replay, test; returns the exit status."""
    begun = time.monotonic()
    parser = argparse.ArgumentParser(description="a verdict on an edit in a minute")
    parser.add_argument("--seconds", type=float, default=27, help="begin no test after these")
    parser.add_argument("--files", type=int, default=12, help="files of tests at most")
    parser.add_argument("--since", default="HEAD", help="the commit to compare with")
    options = parser.parse_args()
    changed = changed_modules(options.since)
    if not changed:
        print(f"no Python file differs from {options.since}: name a commit with --since")
        return 2
    graph = ImportGraph(CHECKOUT)
    tests = chosen_tests(graph, changed)
    print(f"changed: {', '.join(changed)}\nreached by {len(tests)} test files", flush=True)
    reaches_loop = "pagealloc_model.allocator.events" in graph.distances(changed)
    with ProcessPoolExecutor(max_workers=2) as pool:
        before = pool.submit(replayed_at, options.since) if reaches_loop else None
        line = pool.submit(compiled).result()
        if line:
            print(f"  {line} after {time.monotonic() - begun:.0f} s", flush=True)
        if before is not None:
            same = replayed(CHECKOUT) == before.result()
            outcome = "the same as" if same else "ANOTHER than"
            print(f"  replay of {RECORDING}: {outcome} at {options.since}", flush=True)
    in_time = InTime(max(begun + options.seconds, time.monotonic() + LEAST_S))
    in_time.refuse_to_compile()
    if tests[options.files :]:
        in_time.left_out["too many files"] = set(tests[options.files :])
    files = [str(graph.files[name].relative_to(CHECKOUT)) for name in tests[: options.files]]
    failed = pytest.main(["-q", "-x", "--no-header", "-r", "fE", *files], plugins=[in_time])
    for why, names in in_time.left_out.items():
        short = sorted(name.rpartition(".test_")[2] for name in names)
        print(f"left out, {why} ({len(names)}): {', '.join(short)}")
    print(f"{in_time.passed} tests passed after {time.monotonic() - begun:.0f} s")
    if failed not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print("FAILED")
        return 1
    return 0 if in_time.passed else 2


if __name__ == "__main__":
    sys.exit(main())
