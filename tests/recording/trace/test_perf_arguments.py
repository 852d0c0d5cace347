"""What perf's command line says was recorded."""

from __future__ import annotations

import shlex

import pytest

from pagealloc_model.recording.trace.perf_arguments import (
    FILTERED,
    LAST_EVENTS,
    NOT_THE_KERNEL,
    SOME_CPUS,
    TASKS,
    WHOLE,
    WITHOUT_PERF,
    header_words,
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
        ("perf record -a -e kmem:mm_page_alloc:k --filter order==0", FILTERED),
        ("perf record -e kmem:mm_page_alloc/call-graph=fp/ --filt order>3 -a", FILTERED),
        ("perf record -e {kmem:mm_page_alloc,kmem:mm_page_free} -a --filter pfn>9", FILTERED),
        ("perf record --pi 7 -e kmem:mm_page_alloc", TASKS),
        ("perf record --cg web -e kmem:mm_page_alloc -a", TASKS),
        ("perf record --cpu 1,1,1,1 -e kmem:mm_page_alloc", SOME_CPUS),
        ("perf record --switch-max-files 3 -e kmem:mm_page_alloc -a -- make", WHOLE),
        ("perf record --all-cpus -e kmem:mm_page_alloc -- make", WHOLE),
        ("perf record -a --exclude-perf -e kmem:mm_page_alloc", WITHOUT_PERF),
        ("perf record -a --overwrite -e kmem:mm_page_alloc", LAST_EVENTS),
        ("perf record -a --all-user -e kmem:mm_page_alloc", NOT_THE_KERNEL),
        ("perf record --overwrite -C 1 -e kmem:mm_page_alloc", SOME_CPUS),
        ("perf record -o -a -e kmem:mm_page_alloc ls", TASKS),
    ],
)
def test_scope(line: str, scope: str) -> None:
    assert recorded_scope(shlex.split(line), 4) == scope


def test_a_header_in_text_has_no_quotes() -> None:
    line = "/usr/bin/perf record -e kmem:mm_page_alloc --filter order >= 3 -C 1 -- sleep 3 "
    words = header_words(line)
    assert words[4:9] == ["--filter", "order >= 3", "-C", "1", "--"]
    assert (
        recorded_scope(header_words("perf record -a -e kmem:* --filter order > 3 make")) == FILTERED
    )


def test_a_list_of_cpus_is_a_part_where_their_number_is_not_known() -> None:
    assert recorded_scope(["perf", "record", "-C", "0-3"]) == SOME_CPUS
