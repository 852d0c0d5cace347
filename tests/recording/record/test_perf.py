import pytest

from pagealloc_model.base.errors import UsageError
from pagealloc_model.recording.record.host import Host
from pagealloc_model.recording.record.perf import (
    available_events,
    choose_events,
    event_arguments,
    without_addresses,
)
from pagealloc_model.recording.trace import tracepoints as tp

ALL = frozenset((*tp.USUAL, "sched:sched_switch"))


def test_the_usual_set_is_recorded_where_the_kernel_has_it(machine: Host) -> None:
    assert machine.tracefs is not None
    chosen = choose_events(available_events(machine.tracefs), ["default"], locks=True)
    assert chosen == (tp.USUAL, ())


def test_what_the_kernel_lacks_is_dropped_and_named() -> None:
    names, missing = choose_events(ALL - {"cma:cma_release"}, ["default"], locks=True)
    assert "cma:cma_release" not in names
    assert missing == ("cma:cma_release",)


def test_locks_can_be_left_out() -> None:
    names, missing = choose_events(ALL, ["default"], locks=False)
    assert missing == ()
    lock = {name for name in tp.USUAL if name.startswith(("lock:", "kmem:mm_zone_lock"))}
    assert {*tp.USUAL} - {*names} == lock and len(lock) == 6


def test_patterns_replace_the_usual_set_but_not_allocations_and_frees() -> None:
    names, _ = choose_events(ALL, ["oom:*"], locks=True)
    assert names == (*tp.ESSENTIAL, "oom:compact_retry", "oom:reclaim_retry_zone")


def test_events_are_added_to_the_usual_set() -> None:
    names, _ = choose_events(ALL, ["default", "sched:sched_switch"], locks=True)
    assert names == (*tp.USUAL, "sched:sched_switch")


@pytest.mark.parametrize("pattern", ["kmem:mm_page_aloc", "sched_switch", "numa:*"])
def test_an_event_asked_for_by_name_must_exist(pattern: str) -> None:
    with pytest.raises(UsageError, match="no such tracepoint"):
        choose_events(ALL, [pattern], locks=True)


@pytest.mark.parametrize("call_chains", [False, True])
def test_contention_comes_with_call_chains_and_where_asked_for_kmem(
    machine: Host, call_chains: bool
) -> None:
    words = list(event_arguments(tp.USUAL, machine, call_chains=call_chains))
    kmem = {name for name in tp.USUAL if call_chains and name.startswith("kmem:")}
    chained = {f"{name}/call-graph=fp/" for name in kmem}
    chained.add("lock:contention_begin/call-graph=fp,max-stack=12/")
    assert {word for word in words if "call-graph" in word} == chained
    assert {*tp.USUAL} - {*words} == kmem | {"lock:contention_begin"}


def test_of_the_workqueue_only_the_decay_ticks_are_recorded(machine: Host) -> None:
    words = list(event_arguments(["workqueue:workqueue_execute_start"], machine))
    assert words[1:] == [
        "workqueue:workqueue_execute_start",
        "--filter",
        "function == 0xffffffff815bc070",
    ]
    assert without_addresses(words)[-1] == "function == vmstat_update"


@pytest.mark.parametrize("symbols", ["0000000000000000 t vmstat_update\n", ""])
def test_without_addresses_the_workqueue_is_left_out(machine: Host, symbols: str) -> None:
    (machine.proc / "kallsyms").write_text(symbols)
    assert list(event_arguments(["workqueue:workqueue_execute_start"], machine)) == []
