"""A unit cut out of a tree: its own functions, found by their names, once each."""

from __future__ import annotations

import pytest

from pagealloc_model.kernel_source.extraction import (
    Item,
    KernelSourceError,
    TreeIndex,
    extract,
    top_level_items,
)
from tests.kernel_source import Patched, Sources
from tests.kernel_source.test_source_tree import PAGE_ALLOC, PLAIN


def test_a_unit_holds_the_tree_s_own_functions(kernel_source: Sources) -> None:
    unit = extract(TreeIndex(kernel_source("6.12")), PLAIN)
    functions = {each.names[0] for each in unit.items if each.kind == "function"}
    assert {"rmqueue_bulk", "nr_pcp_high", "__rmqueue_claim", "zone_watermark_fast"} <= functions
    assert "__alloc_pages_slowpath" not in functions
    line = next(each.line for each in unit.items if each.names[0] == "nr_pcp_free")
    assert unit.function_at(PAGE_ALLOC, line + 3) == "nr_pcp_free"


def test_renamed_and_changed_functions_are_all_listed(patched: Patched) -> None:
    old = "static void reserve_highatomic_pageblock(struct page *page, int order,"
    tree = patched("6.12", PAGE_ALLOC, old, f"{old} int gate,")
    text = tree.root / PAGE_ALLOC
    text.write_text(text.read_text().replace("wake_all_kswapds(", "wake_every_kswapd("))
    with pytest.raises(KernelSourceError) as caught:
        extract(TreeIndex(tree), PLAIN)
    message = str(caught.value)
    assert f"reserve_highatomic_pageblock() at {PAGE_ALLOC}:" in message
    assert "has a parameter 'gate'" in message
    assert "not found: wake_all_kswapds();" in message


SOURCE = """\
/* int not_here(void) { return 1; } */
#ifndef GUARD_H
#define GUARD_H
#include <linux/list.h>

#define LIMIT(x) ((x) + \\
  EXTRA) /* a comment that
 * goes on */
enum colour { RED, GREEN = 4, /* , BLUE */ };
struct shelf {
    struct book *books[LIMIT(2)];
    enum colour colour;
};
struct book;
typedef unsigned int __bitwise mark_t;
static DEFINE_MUTEX(shelf_lock);
static DEFINE_PER_CPU(int, shelf_count);
static int table[2][3] = {
    [RED] = { 1, ('}') },
};
extern int elsewhere(int a);
static void later(void);

#ifdef CONFIG_WIDE
static inline int width(struct shelf *shelf) { return wide(shelf); }
#elif CONFIG_DEPTH > 2
static inline int width(struct shelf *shelf)
{
#if 0
    { return '}'; }
#endif
    { return deep(shelf, "}"); }
}
#else
static inline int width(struct shelf *shelf) { return 0; }
#endif
__no_sanitize
static inline
struct book *first(struct shelf *shelf, int mark_count)
{
    return shelf->books[0];
}
EXPORT_SYMBOL(first);
#endif
"""


def named(name: str) -> list[Item]:
    return [each for each in top_level_items(SOURCE, "mm/shelf.c") if name in each.names]


def test_each_definition_is_found_once_by_its_names() -> None:
    first = ["GUARD_H", "LIMIT", "enum colour RED GREEN", "struct shelf", "mark_t", "shelf_lock"]
    names = [" ".join(each.names) for each in top_level_items(SOURCE, "mm/shelf.c")]
    assert names == [*first, "shelf_count", "table", *["width"] * 3, "first"]


def test_variants_keep_the_conditions_that_choose_between_them() -> None:
    assert [each.conditions[1:] for each in named("width")] == [
        ("(defined(CONFIG_WIDE))",),
        ("!(defined(CONFIG_WIDE)) && (CONFIG_DEPTH > 2)",),
        ("!(defined(CONFIG_WIDE)) && !(CONFIG_DEPTH > 2) && (1)",),
    ]


def test_items_know_their_lines_words_and_parameters() -> None:
    (function,), (macro,) = named("first"), named("LIMIT")
    assert SOURCE.splitlines()[function.line - 1] == "__no_sanitize"
    assert SOURCE.splitlines()[function.end_line - 1] == "}"
    assert function.parameters == ("shelf", "mark_count")
    assert function.prototype.endswith("struct book *first(struct shelf *shelf, int mark_count);")
    assert macro.text.split() == ["#define", "LIMIT(x)", "((x)", "+", "\\", "EXTRA)"]
    assert macro.is_called
    assert "EXTRA" in macro.words
    assert {"deep(", "struct shelf", "shelf"} <= named("width")[1].words
    assert {"struct book", "LIMIT("} <= named("struct shelf")[0].words
