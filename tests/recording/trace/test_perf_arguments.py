"""What perf's command line says was recorded."""

from __future__ import annotations

import shlex

import pytest

from pagealloc_model.recording.trace.perf_arguments import (
    FILTERED,
    SOME_CPUS,
    TASKS,
    WHOLE,
    recorded_scope,
)


@pytest.mark.parametrize(
    ("line", "scope"),
    [
        ("", ""),
        ("perf", ""),
        ("perf record -a -e kmem:mm_page_alloc", WHOLE),
        ("/usr/bin/perf record -ag -e kmem:mm_page_alloc -- make -j8", WHOLE),
        ("perf record -e kmem:mm_page_alloc -agc1 sleep 3", WHOLE),
        ("perf record -e kmem:mm_page_alloc", WHOLE),
        ("perf record -e kmem:mm_page_alloc sleep 3", TASKS),
        ("perf record -e kmem:mm_page_alloc -- sleep -a", TASKS),
        ("perf record -e kmem:mm_page_alloc -p 123", TASKS),
        ("perf record -e kmem:mm_page_alloc -p123", TASKS),
        ("perf record --tid=7 -e kmem:*", TASKS),
        ("perf record -a -e kmem:mm_page_alloc -G web", TASKS),
        ("perf record -e kmem:mm_page_alloc --uid 1000 -a", TASKS),
        ("perf record -C 1 -e kmem:mm_page_alloc", SOME_CPUS),
        ("perf record -C0,2 -e kmem:mm_page_alloc", SOME_CPUS),
        ("perf record --cpu=0-2 -e kmem:mm_page_alloc", SOME_CPUS),
        ("perf record -C 0-3 -e kmem:mm_page_alloc", WHOLE),
        ("perf record -a -e kmem:mm_page_alloc --filter 'order >= 3'", FILTERED),
        ("perf record -e kmem:mm_page_alloc --filter=order>3 -a", FILTERED),
        ("perf record -a -e kmem:* --filter order>3", FILTERED),
        ("perf record -a -e kmem:mm_page_alloc -e lock:contention_begin --filter flags==2", WHOLE),
        ("perf kmem --page record -- make", WHOLE),
        ("perf record -o -a -e kmem:mm_page_alloc ls", TASKS),
    ],
)
def test_scope(line: str, scope: str) -> None:
    assert recorded_scope(shlex.split(line), 4) == scope


def test_a_list_of_cpus_is_a_part_where_their_number_is_not_known() -> None:
    assert recorded_scope(["perf", "record", "-C", "0-3"]) == SOME_CPUS
