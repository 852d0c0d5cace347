"""What ownership adds to the model's state, in the oracle's words."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator.state import State
from pagealloc_model.policy.ownership_options import OwnershipOptions
from tests.oracle.ownership import OwnershipCount, PhaseCount
from tests.oracle.rules import OracleOwnership

COUNTERS = {
    "claimed": at.BLOCKS_CLAIMED,
    "recorded": at.BLOCKS_RECORDED,
    "recovered": at.BLOCKS_RECOVERED,
    "ended": at.OWNERSHIPS_ENDED,
    "remote_frees": at.REMOTE_FREES,
    "busy_frees": at.REMOTE_BUSY,
    "splits": at.LIST_SPLITS,
    "merges": at.LIST_MERGES,
    "merge_looks": at.MERGE_ENTRIES,
    "recorded_looks": at.RECORDED_ENTRIES,
}
"""The model's word for each of the oracle's counts."""


def model_ownership(options: OracleOwnership | None) -> dict[str, Any]:
    """Policy fields that say the same."""
    if options is None:
        return {}
    return {
        "pageblock_ownership": "pcp_buddy",
        "ownership": OwnershipOptions(**asdict(options)),
    }


def list_count(state: State) -> int:
    """Lists of a page set."""
    if state.st[at.OWNERSHIP]:
        return at.PCP_TYPES * (state.machine.pageblock_order + 1)
    of_huge_pages = 2 if state.machine.thp else 0
    return at.PCP_TYPES * (int(state.st[at.POLICY_COSTLY_ORDER]) + 1) + of_huge_pages


def dump_ownership(state: State) -> dict[str, Any]:
    """Owners, recorded lists, marks and counts as `tests.oracle.dump` has them."""
    cpus = range(state.machine.nr_cpus)
    sets = [
        (zone, cpu) for zone, spec in enumerate(state.machine.zones) if spec.managed for cpu in cpus
    ]
    counts = {
        (*key, name): count for key in sets for name, count in asdict(_count(state, *key)).items()
    }
    if not state.st[at.OWNERSHIP]:
        return {"owners": {}, "recorded": {}, "mergeable": {}, "ownership_counts": counts}
    return {
        "owners": _owners(state),
        "recorded": {key: _recorded(state, *key) for key in sets},
        "mergeable": {
            (zone, cpu, index): _marked(state, zone, cpu, index)
            for zone, cpu in sets
            for index in range(list_count(state))
        },
        "ownership_counts": counts,
    }


def _scalar(state: State, word: int) -> int:
    return int(state.st[state.st[at.OWNERSHIP] + word])


def _blocks(state: State) -> np.ndarray:
    first = _scalar(state, at.OWNED_BLOCKS)
    words = state.st[first : first + len(state.blocks) * at.OWNED_BLOCK_WORDS]
    return words.reshape(-1, at.OWNED_BLOCK_WORDS)


def _set(state: State, zone: int, cpu: int) -> np.ndarray:
    """Words of a CPU's part in a zone; zeros where no block is ever owned."""
    if not state.st[at.OWNERSHIP]:
        return np.zeros(at.OWNED_SET_STRIDE, np.int64)
    number = zone * state.machine.nr_cpus + cpu
    first = _scalar(state, at.OWNED_SETS) + number * at.OWNED_SET_STRIDE
    return state.st[first : first + at.OWNED_SET_STRIDE]


def _owners(state: State) -> dict[int, tuple[int, bool]]:
    recorded = _blocks(state)[:, at.BLOCK_IS_RECORDED]
    first = _scalar(state, at.OWNERS)
    owners = state.st[first : first + len(state.blocks)]
    return {
        int(number): (int(owners[number]) - 1, bool(recorded[number]))
        for number in np.flatnonzero(owners)
    }


def _recorded(state: State, zone: int, cpu: int) -> list[int]:
    blocks = _blocks(state)
    head, _, entries = _set(state, zone, cpu)[at.SET_RECORDED :][: at.LIST_WORDS]
    found = []
    number = int(head)
    while number >= 0:
        found.append(number)
        number = int(blocks[number, at.BLOCK_NEXT])
    assert len(found) == entries
    return found


def _marked(state: State, zone: int, cpu: int, index: int) -> list[int]:
    lists = state.pcp_region(zone, cpu)[at.PCP_LISTS : at.PCP_SITES].reshape(-1, at.LIST_WORDS)
    pages = state.list_pages(lists[index])
    return [pfn for pfn in pages if state.pages[pfn]["flags"] & at.MERGEABLE]


def _count(state: State, zone: int, cpu: int) -> OwnershipCount:
    words = _set(state, zone, cpu)
    locks = state.pcp_region(zone, cpu)
    return OwnershipCount(
        phases=tuple(_phase(words, phase) for phase in range(at.PHASES)),
        lock_acquisitions=int(locks[at.PCP_LOCKS]),
        lock_drain_holds=int(locks[at.PCP_DRAIN_LOCKS]),
        lock_handovers=int(locks[at.PCP_LOCK_HANDOVERS]),
        **{name: int(words[word]) for name, word in COUNTERS.items()},
    )


def _phase(words: np.ndarray, phase: int) -> PhaseCount:
    first = at.SET_PHASES + phase * at.PHASE_STRIDE
    return PhaseCount(
        refills=int(words[first + at.PHASE_REFILLS]),
        objects=int(words[first + at.PHASE_OBJECTS]),
        pages=int(words[first + at.PHASE_PAGES]),
    )
