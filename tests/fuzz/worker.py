"""Feeds damaged recordings to the readers, in a process that may well die of it.

Usage: python -m tests.fuzz.worker JOB.json

The input under test always lies in the job's directory as `input`, so that whoever started this
process can find what killed it. What fails and does not kill is kept in `failures`. The report is
printed as JSON.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import random
import re
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import pagealloc_model.recording.trace
from pagealloc_model.base import files as compressed
from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace
from tests.fuzz.mutation import cut, damaged, with_one_record_damaged
from tests.fuzz.seeds import all_seeds, is_walkable, reader_of

_TRACED = (*pagealloc_model.recording.trace.__path__, compressed.__file__)


class LineCoverage:
    """Collects (file, line before, line) of the readers' code."""

    def __init__(self) -> None:
        self.seen: set[tuple[str, int, int]] = set()  # every step from line to line so far
        self.found_new = False  # what was watched last took a step never seen before

    def __enter__(self) -> None:
        """Watch what runs from now on."""
        self.found_new = False
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_TRACED):
            return None
        before, seen = 0, self.seen

        def stepped(frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal before
            if event == "line":
                step = (file, before, frame.f_lineno)
                if step not in seen:
                    seen.add(step)
                    self.found_new = True
                before = frame.f_lineno
            return stepped

        return stepped


def check_consistent(trace: Trace) -> None:
    """A trace from damaged bytes is a trace: ordered, of one length, within its types' meaning."""
    lengths = {len(getattr(trace, name)) for name in COLUMN_TYPES}
    assert len(lengths) == 1, f"columns of lengths {lengths}"
    assert np.all(trace.time_ns[1:] >= trace.time_ns[:-1]), "times descend"
    assert len(trace) == 0 or trace.time_ns[0] >= 0, "a negative time"
    assert np.all(trace.event <= 5) and np.all(trace.cpu >= 0), "an impossible event or CPU"
    for name, table in trace.tables.items():
        assert {len(column) for column in table.values()} == {len(table["time_ns"])}, name
        assert np.all(table["time_ns"][1:] >= table["time_ns"][:-1]), f"{name} descends"
        assert np.all((table["row"] >= 0) & (table["row"] <= len(trace))), f"rows of {name}"
        if "callchain_len" in table:
            ends = table["callchain_start"] + table["callchain_len"]
            assert np.all(table["callchain_len"] >= 0), f"call chains of {name}"
            assert np.all(ends <= len(trace.callchains)), f"call chains of {name}"
    losses = trace.losses
    assert len(losses.cpu) == len(losses.count) == len(losses.start_ns) == len(losses.end_ns)
    assert np.all(losses.count >= 0), "a negative loss"


def check_beginning(trace: Trace, whole: Trace) -> None:
    """The events are the first of the whole recording's."""
    assert len(trace) <= len(whole), "more events than there were"
    for name in COLUMN_TYPES:
        expected = getattr(whole, name)[: len(trace)]
        assert np.array_equal(getattr(trace, name), expected), f"{name} is not the beginning"


def check_all_but_one(trace: Trace, whole: Trace) -> None:
    """At most one event is another than it was, or gone, or new."""
    now, before = _rows(trace), _rows(whole)
    assert (now - before).total() <= 1, "several events changed"
    assert (before - now).total() <= 1, "several events are gone"


def _rows(trace: Trace) -> Counter[tuple[int, ...]]:
    return Counter(zip(*(getattr(trace, name).tolist() for name in COLUMN_TYPES), strict=True))


MEMORY = 512 << 20  # bytes of address space that a reader may take beside what the process has
LONGEST_S = 300  # seconds on one input after which the process is killed
_LARGEST_INPUT = 1 << 20

Check = Callable[[Trace], None]
"""What must hold of the trace that is read of an input, if there is one."""


class Worker:
    """Makes inputs, reads them, keeps those that reach new lines: one job of `tests.fuzz.run`."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._directory = directory = Path(job["directory"])
        self._path = directory / "input"
        self._dice = random.Random(job["seed"])
        self._coverage = LineCoverage() if job["guided"] else None
        self._outcomes: Counter[str] = Counter()
        self._failures: dict[str, str] = {}
        self._slowest_s = 0.0
        self._seeds = all_seeds(directory, Path(job["real"]))
        self._wholes: dict[str, Trace] = {}
        for name, content in self._seeds.items():
            self._path.write_bytes(content)
            with warnings.catch_warnings(action="ignore"):
                self._wholes[name] = reader_of(name)(self._path)
        self._corpus = list(self._seeds.items())
        self._kept = Path(job["corpus"]) if job["corpus"] else None
        if self._kept is not None and self._kept.is_dir():
            for path in sorted(self._kept.iterdir()):
                self._corpus.append((path.name.partition(" ")[2], path.read_bytes()))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    def run(self) -> dict[str, Any]:
        """Work for so long, or on so many inputs, as the job says; returns the report."""
        begun, done = time.monotonic(), 0
        while time.monotonic() - begun < self._job["seconds"] and done < self._job["inputs"]:
            self._try(*self._next())
            done += 1
        faulthandler.cancel_dump_traceback_later()
        if self._kept is not None:
            self._kept.mkdir(exist_ok=True)
            for number, (name, content) in enumerate(self._corpus[len(self._seeds) :]):
                (self._kept / f"{number:05d} {name}").write_bytes(content)
        steps = self._coverage.seen if self._coverage else set()
        return {
            "inputs": done,
            "seconds": round(time.monotonic() - begun, 1),
            "slowest_s": round(self._slowest_s, 3),
            "corpus": len(self._corpus),
            "lines": len({(file, line) for file, _, line in steps}),
            "steps": len(steps),
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
            "outcomes": dict(self._outcomes.most_common()),
            "failures": self._failures,
        }

    def _next(self) -> tuple[str, bytes, Check]:
        """A seed's name, what became of it, and what must hold: half are damaged in a known way."""
        dice, choice = self._dice, self._dice.random()
        if choice < 0.15:
            name = dice.choice(list(self._seeds))
            whole = self._wholes[name]
            return name, cut(self._seeds[name], dice), lambda trace: check_beginning(trace, whole)
        if choice < 0.4:
            name = dice.choice([name for name in self._seeds if is_walkable(name)])
            whole = self._wholes[name]
            content = with_one_record_damaged(self._seeds[name], dice)
            return name, content, lambda trace: check_all_but_one(trace, whole)
        name, content = dice.choice(self._corpus)
        others = [other for _, other in dice.sample(self._corpus, 2)]
        return name, damaged(content, others, dice)[:_LARGEST_INPUT], lambda _: None

    def _try(self, seed: str, content: bytes, check: Check) -> None:
        self._path.write_bytes(content)
        faulthandler.dump_traceback_later(LONGEST_S, exit=True)
        begun = time.monotonic()
        try:
            with warnings.catch_warnings(), self._coverage or nullcontext():
                warnings.simplefilter("ignore", UserWarning)
                warnings.simplefilter("error", RuntimeWarning)
                outcome = self._outcome(seed, check)
        except Exception as error:
            outcome = "FAILURE"
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno} {type(error).__name__}"
            if place not in self._failures:
                failures = self._directory / "failures"
                failures.mkdir(exist_ok=True)
                (failures / f"{len(self._failures):03d} {seed}").write_bytes(content)
                self._failures[place] = "".join(traceback.format_exception(error)[-6:])
        self._slowest_s = max(self._slowest_s, time.monotonic() - begun)
        self._outcomes[outcome] += 1
        if self._coverage and self._coverage.found_new:
            self._corpus.append((seed, content))

    def _outcome(self, seed: str, check: Check) -> str:
        try:
            trace = reader_of(seed)(self._path)
        except RecordingError as error:
            assert "\n" not in str(error), "an error of several lines"
            assert str(self._path) in str(error), "an error that does not name the file"
            if error.offset is not None:
                assert 0 <= error.offset <= _LARGEST_INPUT * 64, "an offset out of reach"
            return re.sub(r"[\d'\"].*", "...", error.what)[:60]
        check_consistent(trace)
        check(trace)
        return "a trace with a note" if trace.notes else "a trace"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(json.dumps(Worker(json.loads(Path(sys.argv[1]).read_text())).run()))
