"""Flame graphs of call stacks."""

from __future__ import annotations

import json

from pagealloc_model.recording.trace import tracepoints as tp
from pagealloc_model.show.flame_graph import folded, speedscope
from tests.measured.test_call_stacks import some_stacks


def test_flame_graphs() -> None:
    table = some_stacks().by_stack(tp.PAGE_ALLOC)
    assert folded(table).splitlines() == ["cc1;exit_mmap;free 8", "make;do_fault;alloc 3"]
    written = json.loads(speedscope({"one": table, "two": table}, "events"))
    assert [profile["weights"] for profile in written["profiles"]] == [[1, 2]] * 2
    frames = [frame["name"] for frame in written["shared"]["frames"]]
    first = written["profiles"][0]["samples"][0]
    assert [frames[index] for index in first] == ["cc1", "exit_mmap", "free"]
    assert written["profiles"][0]["endValue"] == 3
