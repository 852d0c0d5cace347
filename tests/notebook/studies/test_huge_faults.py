"""Faults for huge pages beside a round: how many, when, and how long they are kept."""

from __future__ import annotations

import numpy as np
import pytest
from pagealloc_model.notebooks.studies.repeated import HugeFaults, fault_events

from pagealloc_model.allocator import layout as at
from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.recording.machine import synthetic_machine

ORDER, SPAN = 9, 10_000_000_000


def made(faults: HugeFaults) -> tuple[np.ndarray, np.ndarray]:
    machine = synthetic_machine(1, 2, KernelRules.preset("7.2"))
    return fault_events(faults, 0, SPAN, machine)


@pytest.mark.parametrize("beside", [True, False])
def test_so_many_are_asked_for_then_and_no_more_are_kept(beside: bool) -> None:
    faults = HugeFaults(per_round=20, kept=5, beside=beside)
    events, _ = made(faults)
    asked = events[events["operation"] == at.RECORDED_FAILURE]
    assert len(asked) == 20
    assert ((asked["time_ns"] < SPAN) == beside).all()
    huge = events[events["order"] == ORDER]
    alive = np.cumsum(np.where(huge["operation"] == at.FREE, -1, 1))
    assert alive.max() == 5 + 1
    assert alive[-1] == 0
    assert events["time_ns"].max() < SPAN + faults.pause_ns()


def test_base_pages_stand_for_the_one_they_follow_and_go_with_it() -> None:
    _, whole = made(HugeFaults(per_round=3, kept=1))
    assert (np.bincount(whole[whole >= 0], minlength=3) == 1 << ORDER).all()
    events, leads = made(HugeFaults(per_round=3, kept=1, touched=9))
    assert (np.bincount(leads[leads >= 0], minlength=3) == 9).all()
    frees = events[events["operation"] == at.FREE]
    freed_at = dict(zip(frees["object"].tolist(), frees["time_ns"].tolist(), strict=True))
    assert all(
        freed_at[number] == freed_at[int(lead)] for number, lead in enumerate(leads) if lead >= 0
    )


def test_none_are_no_load_and_fewer_are_refused() -> None:
    assert len(made(HugeFaults(per_round=0))[0]) == 0
    with pytest.raises(UsageError, match="per_round=-1"):
        HugeFaults(per_round=-1)
    with pytest.raises(UsageError, match="1 us or more"):
        HugeFaults(touched=-1)
