"""Queues of CPUs at zone->lock, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pagealloc_model.allocator import layout as at
from pagealloc_model.policy.lock_costs import Cost, LockCosts
from pagealloc_model.policy.policy import Policy
from pagealloc_model.predicted.lock_times import NO_VISITS, VISIT, LockModel, LockTimes, queued
from pagealloc_model.recording.machine import Machine, Zone

NOTHING = Cost(ns=0, low_ns=0, high_ns=0)
PER_OBJECT = LockCosts(
    acquire=NOTHING,
    object=Cost(ns=10, low_ns=10, high_ns=10),
    split=NOTHING,
    merge=NOTHING,
    insert=NOTHING,
    scan=NOTHING,
    handoff=NOTHING,
)
"""An object takes 10 ns; nothing else takes time."""

MODEL = LockModel(costs=PER_OBJECT)


def machine(nr_cpus: int = 3) -> Machine:
    """One zone, some CPUs."""
    zone = Zone(
        node=0,
        name="Normal",
        start_pfn=0,
        spanned=1024,
        present=1024,
        managed=1024,
        boost=0,
        lowmem_reserve=(0,),
    )
    return Machine(zones=(zone,), nr_cpus=nr_cpus)


def hold(
    time_ns: int, cpu: int, objects: int, site: int = at.SITE_DIRECT_FREE, of: int = -1
) -> np.void:
    """A log row: some objects at a time by a CPU; `of`: whose list, its own by default."""
    row = np.zeros((), at.LOG)[()]
    row["kind"], row["time_ns"], row["cpu"] = site, time_ns, cpu if of < 0 else of
    row["objects"] = row["pages"] = objects
    row["ran_on"] = cpu
    return row


def run(*rows: np.void, model: LockModel = MODEL, visits: np.ndarray = NO_VISITS) -> LockTimes:
    """The rows in time order through the queue."""
    log = np.array(sorted(rows, key=lambda row: row["time_ns"]), at.LOG)
    return queued(log, machine(), model, visits)


def column(times: LockTimes, name: str) -> list[int]:
    """A column of the acquisitions, CPU by CPU."""
    return times.acquisitions[name].tolist()


def test_alone_nobody_waits() -> None:
    times = run(hold(100, 0, 5), hold(200, 1, 5))
    assert column(times, "wait_ns") == [0, 0]
    assert column(times, "hold_ns") == [50, 50]
    assert times.by_site["contended"].tolist() == [0]


def test_first_come_first_served() -> None:
    """CPU 0 holds for 1000 ns from 100 on; CPU 2 came before CPU 1."""
    times = run(hold(100, 0, 100), hold(300, 1, 10), hold(200, 2, 10))
    assert column(times, "start_ns") == [100, 1200, 1100]
    assert column(times, "wait_ns") == [0, 900, 900]
    assert column(times, "ahead") == [0, 2, 1]
    assert times.span_ns == 1200


def test_a_delay_shifts_what_follows_in_a_closed_loop_only() -> None:
    """CPU 1 waits 900 ns, then comes again 5000 ns later, or as recorded."""
    rows = (hold(100, 0, 100), hold(200, 1, 1), hold(5200, 1, 1))
    closed = run(*rows)
    opened = run(*rows, model=replace(MODEL, closed_loop=False))
    assert column(closed, "arrival_ns") == [100, 200, 6100]
    assert column(opened, "arrival_ns") == [100, 200, 5200]
    assert closed.delay_ns.tolist() == [0, 900, 0]


SLOW = replace(PER_OBJECT, handoff=Cost(ns=100, low_ns=100, high_ns=100))
"""The same where 100 ns pass from a release until the next in the queue has the lock."""


def test_nobody_steals_a_lock_from_who_has_set_the_pending_bit() -> None:
    """CPU 1 queues from 200 on, alone; CPU 2 comes at 1150, in the hand-over after 1100."""
    rows = (hold(100, 0, 100), hold(200, 1, 10), hold(1150, 2, 10))
    for unfair in (False, True):
        times = run(*rows, model=replace(MODEL, costs=SLOW, unfair=unfair))
        assert column(times, "start_ns") == [100, 1200, 1400]


def test_an_unfair_lock_is_stolen_before_the_next_in_the_queue_is_ready() -> None:
    """CPU 1 has the lock from 1200 to 1210; CPU 2, next in the queue, sets the bit at 1300.

    CPU 0 comes back at 1220 and steals it until 1230; at 1320 it cannot again.
    """
    rows = (
        *(hold(100, 0, 100), hold(200, 1, 1), hold(210, 2, 20)),
        *(hold(1220, 0, 1), hold(1320, 0, 1)),
    )
    fair = run(*rows, model=replace(MODEL, costs=SLOW))
    unfair = run(*rows, model=replace(MODEL, costs=SLOW, unfair=True))
    assert column(fair, "start_ns") == [100, 1610, 1710, 1200, 1310]
    assert column(unfair, "start_ns") == [100, 1220, 1630, 1200, 1330]


def test_a_remote_drain_waits_for_the_list_and_makes_trylocks_fail() -> None:
    """CPU 1 drains CPU 0's list while CPU 0 refills it, and holds it when CPU 0 comes again."""
    rows = (
        hold(1000, 0, 50, at.SITE_REFILL),
        hold(700, 1, 100, at.SITE_DRAIN_ALL, of=0),
        hold(1500, 0, 60, at.SITE_DRAIN_COMMIT),
    )
    times = run(*rows)
    assert column(times, "start_ns") == [500, 2000, 1000]
    assert column(times, "list_was_busy") == [False, True, False]
    assert column(times, "hold_ns") == [500, 10, 1000]
    kept = run(*rows, model=replace(MODEL, trylock_fails=False))
    assert column(kept, "hold_ns") == [500, 600, 1000]


def frees(cpu: int, *times_ns: int) -> np.ndarray:
    """Frees that the CPU's list takes."""
    visits = np.zeros(len(times_ns), VISIT)
    visits["time_ns"], visits["cpu"], visits["list_cpu"] = times_ns, cpu, cpu
    visits["frees"] = True
    return visits


def test_frees_go_past_a_list_that_is_being_drained() -> None:
    """CPU 1 drains CPU 0's list from 100 to 1100; the free at 200 queues, so that of 300 is late.

    The page that went past the list is no longer there for CPU 0's own drain of 60.
    """
    rows = (hold(100, 1, 100, at.SITE_DRAIN_ALL, of=0), hold(5000, 0, 60, at.SITE_DRAIN_COMMIT))
    times = run(*rows, visits=frees(0, 50, 200, 300, 4000))
    past = times.acquisitions[times.acquisitions["cause"] == "trylock"]
    assert past["site"].tolist() == ["direct_free"]
    assert past["arrival_ns"].tolist() == [200]
    assert past["wait_ns"].tolist() == [900]
    assert past["pages"].tolist() == [1]
    assert times.trylocks.loc[0, ["frees", "allocations", "pages_left"]].tolist() == [1, 0, 0]
    drain = times.acquisitions[times.acquisitions["cause"] == "commit"]
    assert drain[["objects", "pages", "hold_ns"]].to_numpy().tolist() == [[59, 59, 590]]
    without = run(*rows, model=replace(MODEL, trylock_fails=False), visits=frees(0, 200, 300))
    assert column(without, "hold_ns") == [600, 1000]
    assert without.trylocks["frees"].sum() == 0


def test_a_drain_in_batches_stops_for_who_waits_for_the_list() -> None:
    """CPU 1 comes while CPU 0 drains its first batch of three: two stay on the list."""
    batches = [hold(100, 0, 10, at.SITE_DRAIN_COMMIT) for _ in range(3)]
    times = run(*batches, hold(150, 1, 20, at.SITE_DRAIN_ALL, of=0))
    assert column(times, "start_ns") == [100, 200]
    assert column(times, "pages") == [10, 20]
    assert column(times, "list_wait_ns") == [0, 50]
    assert times.trylocks.loc[0, ["drains_cut_short", "pages_left"]].tolist() == [1, 20]


def test_a_full_drain_takes_what_a_drain_left() -> None:
    """Ten of the 20 pages fit into a hold as large as the largest full drain."""
    batches = [hold(100, 0, 10, at.SITE_DRAIN_COMMIT) for _ in range(3)]
    times = run(
        *batches,
        hold(150, 1, 20, at.SITE_DRAIN_ALL, of=0),
        hold(9000, 2, 30, at.SITE_DRAIN_ALL, of=2),
    )
    assert column(times, "pages") == [10, 30, 30]
    assert column(times, "hold_ns") == [100, 300, 300]


def test_decay_waits_for_its_list() -> None:
    """It does not try: CPU 1 lets go of CPU 0's list at 1100."""
    times = run(hold(100, 1, 100, at.SITE_DRAIN_ALL, of=0), hold(300, 0, 5, at.SITE_DRAIN_DECAY))
    assert column(times, "start_ns") == [1100, 100]
    assert column(times, "list_wait_ns") == [800, 0]
    assert times.trylocks["frees"].sum() == 0


VISITED = replace(MODEL, costs=replace(PER_OBJECT, acquire=Cost(ns=60, low_ns=60, high_ns=60)))
"""A page alone holds a list for 60 ns, another one under the same lock for no time."""


def remote_frees(cpu: int, *times_ns: int, keeps: bool = False) -> np.ndarray:
    """Frees by a CPU to the list of CPU 0; those after the first may go on under its lock."""
    visits = frees(cpu, *times_ns)
    visits["list_cpu"] = 0
    visits["keeps"][1:] = keeps
    return visits


def test_frees_wait_for_the_list_of_another_cpu_in_turn() -> None:
    """CPU 0 holds its list from 100 to 160; CPUs 1 and 2 come at 130 and 120, and wait."""
    visits = np.concatenate([remote_frees(1, 130), remote_frees(2, 120), frees(0, 100)])
    times = run(model=replace(VISITED, frees_wait=True), visits=np.sort(visits, order="time_ns"))
    waits = times.list_waits.set_index("cpu")
    assert waits["wait_ns"].to_dict() == {2: 40, 1: 90}
    assert waits["part"].tolist() == ["free", "free"]
    assert len(times.acquisitions) == 0


def test_many_wait_for_a_list_in_the_order_they_came() -> None:
    """CPU 0 holds its list from 100 to 160, then each of the others for 60 ns."""
    came = {3: 110, 1: 120, 4: 130, 2: 140}
    visits = np.concatenate([frees(0, 100), *(remote_frees(*each) for each in came.items())])
    log = np.zeros(0, at.LOG)
    times = queued(log, machine(5), replace(VISITED, frees_wait=True), visits)
    waits = times.list_waits.set_index("cpu")["wait_ns"].to_dict()
    assert {cpu: came[cpu] + wait for cpu, wait in waits.items()} == {
        3: 160,
        1: 220,
        4: 280,
        2: 340,
    }


@pytest.mark.parametrize(
    ("settings", "waits"),
    [
        ([], False),
        (["pageblock_ownership=pcp_buddy"], True),
        (["pageblock_ownership=pcp_buddy", "ownership.remote_free=trylock"], False),
        (["pageblock_ownership=pcp_buddy", "ownership.remote_free=lockless"], False),
    ],
)
def test_frees_wait_as_the_policy_has_it(settings: list[str], waits: bool) -> None:
    assert MODEL.of(Policy.parse(settings)).frees_wait == waits


def test_frees_that_try_go_to_the_zone_and_an_allocation_always_tries() -> None:
    """CPU 1 frees to CPU 0's list at 100; CPU 0 comes at 120, CPU 2 frees to it at 130."""
    own = frees(0, 120)
    own["frees"] = False
    visits = np.concatenate([remote_frees(1, 100), own, remote_frees(2, 130)])
    spin = run(model=replace(VISITED, frees_wait=True), visits=visits)
    assert spin.acquisitions["site"].tolist() == ["buddy_alloc"]
    assert spin.list_waits["wait_ns"].tolist() == [30]
    tried = run(model=VISITED, visits=visits)
    assert tried.acquisitions["site"].tolist() == ["buddy_alloc", "direct_free"]
    assert len(tried.list_waits) == 0


def test_a_folio_batch_keeps_the_list() -> None:
    """Three pages hold the list of CPU 0 for 60, 10 and 10 ns, from 100 on; CPU 2 comes at 170."""
    costs = replace(VISITED.costs, insert=Cost(ns=10, low_ns=10, high_ns=10))
    kept = np.concatenate([remote_frees(1, 100, 150, 400, keeps=True), remote_frees(2, 170)])
    visits = np.sort(kept, order="time_ns")
    times = run(model=replace(VISITED, costs=costs, frees_wait=True), visits=visits)
    assert times.list_waits[["cpu", "wait_ns"]].to_numpy().tolist() == [[2, 20]]


def test_a_wait_for_the_zone_lengthens_the_hold_of_the_list() -> None:
    """CPU 0 refills from 200 on but has zone->lock at 1100 only; CPU 1 waits until 1300."""
    rows = (hold(100, 2, 100), hold(400, 0, 20, at.SITE_REFILL))
    model = replace(VISITED, costs=PER_OBJECT, frees_wait=True)
    times = run(*rows, model=model, visits=remote_frees(1, 250))
    assert column(times, "start_ns") == [1100, 100]
    assert times.list_waits["wait_ns"].tolist() == [1050]


def test_holds_of_one_event_follow_each_other() -> None:
    """Three chunks of one free: no wait, one spell."""
    times = run(*(hold(100, 0, 10, at.SITE_DRAIN_COMMIT) for _ in range(3)))
    assert column(times, "arrival_ns") == [100, 200, 300]
    assert times.longest_starvation_ns == 0
    assert times.stalls["longest_spell_ns"].tolist() == [300]
    assert times.delay_ns.tolist() == [0, 0, 0]
    assert times.utilisation["Normal"] == pytest.approx(1.0)


def test_an_empty_log_has_empty_tables() -> None:
    times = queued(np.zeros(0, at.LOG), machine(), MODEL)
    assert len(times.by_site) == 0
    assert times.longest_starvation_ns == 0
