"""An elastic replay of a recording with a state begins with the kernel's own LRU lists."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.allocator.state import State
from pagealloc_model.measured.rules import recorded_rules
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.elastic_values import elastic_values
from pagealloc_model.predicted.prepared import Prepared, prepare
from pagealloc_model.predicted.start.as_read import read_reclaim
from pagealloc_model.recording.recorded_machine import recorded_policy
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.recording.state_file import ON_LRU_LIST

ELASTIC = Assumptions(reclaim="elastic")


@cache
def quiet() -> Recording:
    return open_recording("quiet_guest")


@cache
def prepared() -> Prepared:
    return prepare(quiet(), recorded_rules(quiet()).rules, ELASTIC, 0)


def start() -> State:
    return prepared().state(recorded_rules(quiet()).rules, recorded_policy(quiet()), ELASTIC)


def node_words(state: State) -> np.ndarray:
    first = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.NODES_BASE])
    return state.st[first : first + pr.NODE_WORDS]


def test_lru_lists_are_the_kernels_page_for_page() -> None:
    dated, state = quiet().start_state, start()
    assert dated is not None
    pfns, lists = dated.state.list_of_entries(ON_LRU_LIST)
    assert len(pfns) > 4000
    words = node_words(state)[pr.NODE_LISTS :].reshape(-1)
    for kind in range(pr.LRU_LISTS):
        kernels = pfns[dated.state.list_type[lists] == kind].tolist()
        assert state.list_pages(words[kind * at.LIST_WORDS :][: at.LIST_WORDS]) == kernels


def test_compaction_goes_on_where_the_kernels_stood() -> None:
    dated = quiet().start_state
    assert dated is not None
    own = dated.state
    where = own.zone_compact_free_pfn + 512
    skip = np.zeros_like(own.block_skip)
    skip[5] = 1
    changed = replace(
        own,
        zone_compact_free_pfn=where,
        zone_compact_defer_shift=where * 0 + 3,
        node_kswapd_failures=np.array([7]),
        block_skip=skip,
    )
    machine = prepared().machine
    read = read_reclaim(machine, replace(dated, state=changed))
    state = read.put_into(start())
    first = int(state.st[int(state.st[at.PRESSURE_BASE]) + pr.ZONES_BASE])
    zones = state.st[first : first + pr.ZONE_WORDS * len(machine.zones)]
    zones = zones.reshape(-1, pr.ZONE_WORDS)
    assert zones[:, pr.ZONE_DEFER_SHIFT].tolist() == [3] * len(machine.zones)
    assert set(zones[:, pr.ZONE_FREE_FROM].tolist()) <= set(where.tolist())
    assert node_words(state)[pr.KSWAPD_FAILURES] == 7
    assert np.flatnonzero(state.folios["skip"]).tolist() == [5 << machine.pageblock_order]


def test_skip_marks_are_of_the_recorded_pageblocks() -> None:
    read = replace(prepared().read_reclaim, skipped=np.ones(100, bool), pageblock_order=7)
    assert not read.put_into(start()).folios["skip"].any()


def test_what_is_read_off_the_state_is_not_imposed() -> None:
    values = elastic_values(quiet())
    assert not values.elastic.lru_as_recorded
    assert "LRU lists and compaction's positions at the start" in str(values)
    assert "order of reclaim" not in str(values)
