"""State files: what is written is read again, and damaged or hostile ones are refused."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.base.errors import RecordingError
from pagealloc_model.recording import state_file
from pagealloc_model.recording.state_file import (
    ON_FREE_LIST,
    ON_LRU_LIST,
    ON_PCP_LIST,
    MachineState,
    read_state,
    write_state,
)

PAGES, BLOCK_ORDER = 2048, 9
_SIZES = {
    "pages": PAGES,
    "lists": 4,
    "listed": 7,
    "blocks": PAGES >> BLOCK_ORDER,
    "zones": 2,
    "cpus": 2,
    "nodes": 1,
    "zone types": 2,
    "watermarks": 4,
    "zone counters": 2,
    "node counters": 1,
    "modes": 2,
    "one": 1,
    "events": 2,
}


def small_state() -> MachineState:
    """Two zones of four pageblocks and two CPUs; each array has other numbers."""
    arrays = {}
    for number, (name, (dtype, *sides)) in enumerate(state_file._SIDES.items()):
        shape = tuple(_SIZES[side] for side in sides)
        arrays[name] = (np.arange(np.prod(shape)).reshape(shape) % 3 + number % 2).astype(dtype)
    arrays |= {
        "list_kind": np.array([ON_FREE_LIST, ON_FREE_LIST, ON_PCP_LIST, ON_LRU_LIST], np.int8),
        "list_zone": np.array([0, 1, 1, 0], np.int16),
        "list_cpu": np.array([-1, -1, 1, -1], np.int16),
        "list_order": np.array([0, 3, 1, -1], np.int8),
        "list_type": np.array([0, 1, 1, 2], np.int8),
        "list_length": np.array([2, 1, 2, 2], np.int64),
        "listed_pfn": np.array([7, 3, 1024, 1040, 1036, 100, 7], np.int32),
        "page_order": np.zeros(PAGES, np.int8),
        "block_type": np.array([0, 1, 1, -1], np.int8),
    }
    about = {
        "source": "guest",
        "release": "6.12.0",
        "pageblock_order": BLOCK_ORDER,
        "zones": ["DMA", "Normal"],
        "nodes": [0],
        "flags": {"lru": 5},
        "lru_lists": ["inactive_anon", "active_anon", "inactive_file"],
        "zone_stat": ["NR_FREE_PAGES", "NR_MLOCK"],
        "node_stat": ["NR_FILE_PAGES"],
        "events": ["mm_page_alloc", "mm_page_free"],
        "read_ns": 5,
    }
    return MachineState(about=about, **arrays)


@pytest.fixture
def state() -> MachineState:
    return small_state()


def test_a_state_is_read_as_it_was_written(tmp_path: Path, state: MachineState) -> None:
    write_state(tmp_path / "begin.state", state)
    again = read_state(tmp_path / "begin.state")
    for each in fields(MachineState):
        one, other = getattr(state, each.name), getattr(again, each.name)
        if each.name == "about":
            assert other == {**one, "state_version": 1}
        else:
            assert one.dtype == other.dtype
            assert np.array_equal(one, other), each.name
    assert again.pages_of(2).tolist() == [1040, 1036]
    pfns, lists = again.list_of_entries(ON_FREE_LIST)
    assert (pfns.tolist(), lists.tolist()) == ([7, 3, 1024], [0, 0, 1])


def test_lists_and_counters_are_set_side_by_side(state: MachineState) -> None:
    kept = replace(
        state,
        zone_stat=np.array([[1, 0], [9, 0]]),
        zone_stat_diff=np.array([[[1, 0], [0, 0]], [[0, 0], [-1, 0]]]),
        pageset_count=np.array([[0, -1], [0, 4]]),
    )
    assert kept.contradiction() == ""
    fewer = replace(kept, zone_stat=np.array([[1, 0], [8, 0]]))
    assert fewer.contradiction() == "10 pages are on free lists, 9 are counted"
    more = replace(kept, pageset_count=np.array([[0, 0], [1, 4]]))
    assert more.contradiction() == "4 pages are on per-CPU lists, 5 are counted"


def _changed(**arrays: list[int]) -> Callable[[MachineState], MachineState]:
    return lambda state: replace(
        state,
        **{name: np.array(values, getattr(state, name).dtype) for name, values in arrays.items()},
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_changed(listed_pfn=[7, 3, 1024, 1040, 1036, 100, 2048]), "listed_pfn holds"),
        (_changed(listed_pfn=[7, 7, 1024, 1040, 1036, 100, 7]), "on two lists"),
        (_changed(listed_pfn=[7, 3, 1024, 1031, 1036, 100, 7]), "on two lists"),
        (_changed(listed_pfn=[7, 3, 2044, 1040, 1036, 100, 7]), "behind the memory"),
        (_changed(listed_pfn=[7, 3, 1024, 1040, 1036, 7, 7]), "on two lists"),
        (_changed(list_length=[2, 1, 2, 1]), "do not add up"),
        (_changed(list_length=[2, 1, -2, 6]), "list_length holds"),
        (_changed(list_zone=[0, 1, 1, 1]), "list_zone holds"),
        (_changed(list_cpu=[-1, 0, 1, -1]), "a CPU or an order"),
        (_changed(list_order=[0, -1, 1, -1]), "a CPU or an order"),
        (_changed(list_order=[0, 15, 1, -1]), "list_order holds"),
        (_changed(list_kind=[0, 0, 1, 3]), "list_kind holds"),
        (_changed(zone_start=[0]), "zones"),
        (_changed(block_type=[0, 1, 1]), "blocks"),
        (lambda state: replace(state, about={**state.about, "nodes": [0, 1]}), "are named"),
        (lambda state: replace(state, about={**state.about, "zones": "DMA"}), "no list of names"),
        (lambda state: replace(state, about={**state.about, "flags": {"lru": "5"}}), "no numbers"),
        (
            lambda state: replace(state, about={**state.about, "pageblock_order": 99}),
            "not an order",
        ),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(
    tmp_path: Path,
    state: MachineState,
    change: Callable[[MachineState], MachineState],
    words: str,
) -> None:
    write_state(tmp_path / "x.state", change(state))
    with pytest.raises(RecordingError, match=words):
        read_state(tmp_path / "x.state")


def _members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def _npy(header: str, content: bytes = b"") -> bytes:
    head = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + content


_HUGE = "{'descr': '<u8', 'fortran_order': False, 'shape': (2147483648,), }"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("page_flags.npy", None, "has no page_flags.npy"),
        ("page_flags.npy", b"nothing", "is no array"),
        ("page_flags.npy", _npy(_HUGE.replace("}", "(")), "is no array"),
        ("page_flags.npy", _npy(_HUGE), "takes more bytes"),
        ("page_flags.npy", _npy(_HUGE.replace("2147483648", "2147483649")), "pages"),
        ("page_flags.npy", _npy(_HUGE.replace("2147483648", "2048")), "not as long"),
        ("page_flags.npy", _npy(_HUGE.replace("<u8", "|O")), "no array of uint64"),
        ("page_order.npy", _npy("{'descr': '|i1', 'fortran_order': True, 'shape': (1,), }"), "no"),
        ("about.json", None, "has no about.json"),
        ("about.json", b"[]", "state_version"),
        ("about.json", b" " * ((1 << 20) + 1), "has more than"),
        ("about.json", json.dumps({"state_version": 2}).encode(), "reads up to 1"),
    ],
)
def test_files_of_strangers_are_bounded(
    tmp_path: Path, state: MachineState, name: str, content: bytes | None, words: str
) -> None:
    path = tmp_path / "x.state"
    write_state(path, state)
    members = {**_members(path), name: content}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for each, values in members.items():
            if values is not None:
                packed.writestr(each, values)
    with pytest.raises(RecordingError, match=words):
        read_state(path)


def test_a_cut_file_is_refused(tmp_path: Path, state: MachineState) -> None:
    write_state(tmp_path / "whole.state", state)
    content = (tmp_path / "whole.state").read_bytes()
    for size in (0, 10, len(content) // 2, len(content) - 1):
        (tmp_path / "cut.state").write_bytes(content[:size])
        with pytest.raises(RecordingError, match="no intact state file"):
            read_state(tmp_path / "cut.state")


def test_numpy_reads_its_arrays(tmp_path: Path, state: MachineState) -> None:
    write_state(tmp_path / "x.state", state)
    values = np.load(io.BytesIO(_members(tmp_path / "x.state")["zone_start.npy"]))
    assert values.tolist() == state.zone_start.tolist()
