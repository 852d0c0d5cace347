"""What a notebook says of the machine it runs on."""

from __future__ import annotations

import numpy as np
import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record import perf_python as live_module
from pagealloc_model.recording.record.doctor import Check
from pagealloc_model.recording.trace.columns import COLUMN_TYPES, Trace
from pagealloc_model.show.post import doctor_text, live_text


def test_what_blocks_and_what_costs() -> None:
    perf = Check(name="perf", found="none", cost="nothing can be recorded", todo="get", blocks=True)
    clock = Check(name="clock", found="jiffies", cost="times are coarse")
    fine = Check(name="root", found="yes")
    first, *rest = doctor_text([perf, clock, fine]).splitlines()
    assert first.startswith("Recording is not possible here. ")
    assert rest[-4:] == [
        "",
        "NO  perf   none; nothing can be recorded; to do: get",
        "--  clock  jiffies; times are coarse",
        "ok  root   yes",
    ]
    assert doctor_text([clock]).startswith("Recording is possible here. ")


def test_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {name: np.zeros(3, dtype) for name, dtype in COLUMN_TYPES.items()}
    columns["event"] = np.array([0, 0, 1])
    trace = Trace(**columns, release="6.12", nr_cpus=2)
    monkeypatch.setattr(live_module, "live", lambda seconds: trace)
    text = live_text(0.5)
    assert text.startswith("this machine (6.12, 2 CPUs) for 0.5 s\n")
    assert [line.split() for line in text.splitlines()[1:3]] == [
        ["kmem:mm_page_alloc", "2", "4/s"],
        ["kmem:mm_page_free", "1", "2/s"],
    ]
    assert text.splitlines()[-1].split() == ["lost", "0"]


def test_why_there_are_no_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(seconds: float) -> Trace:
        raise UsageError("perf's module was not found; see pagealloc doctor")

    monkeypatch.setattr(live_module, "live", refuse)
    assert live_text(2.0) == "not sampled: perf's module was not found; see pagealloc doctor"
