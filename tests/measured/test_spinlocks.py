"""Which spinlocks a machine has, as far as its contention shows it."""

from __future__ import annotations

from pagealloc_model.measured.spinlocks import has_paravirtual_spinlocks
from tests.measured.test_contention import STEPS, WAITS, trace_of


def test_two_cpus_can_show_contention_only_with_paravirtual_spinlocks() -> None:
    assert has_paravirtual_spinlocks(trace_of(STEPS, WAITS))
    assert not has_paravirtual_spinlocks(trace_of(STEPS, WAITS, nr_cpus=4))
    assert not has_paravirtual_spinlocks(trace_of(STEPS, WAITS, flags=2))
