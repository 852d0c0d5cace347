"""C source is cut into items with their names, conditions and words."""

from __future__ import annotations

from pagealloc_model.allocator.from_source.extraction import Item, top_level_items

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


def items() -> list[Item]:
    return list(top_level_items(SOURCE, "mm/shelf.c"))


def named(name: str) -> list[Item]:
    return [each for each in items() if name in each.names]


def test_each_definition_is_found_once_by_its_names() -> None:
    assert [each.names for each in items()] == [
        ("GUARD_H",),
        ("LIMIT",),
        ("enum colour", "RED", "GREEN"),
        ("struct shelf",),
        ("mark_t",),
        ("shelf_lock",),
        ("shelf_count",),
        ("table",),
        ("width",),
        ("width",),
        ("width",),
        ("first",),
    ]


def test_variants_keep_the_conditions_that_choose_between_them() -> None:
    conditions = [each.conditions[1:] for each in named("width")]
    assert conditions == [
        ("(defined(CONFIG_WIDE))",),
        ("!(defined(CONFIG_WIDE)) && (CONFIG_DEPTH > 2)",),
        ("!(defined(CONFIG_WIDE)) && !(CONFIG_DEPTH > 2) && (1)",),
    ]


def test_lines_are_those_of_the_file() -> None:
    (function,) = named("first")
    assert SOURCE.splitlines()[function.line - 1] == "__no_sanitize"
    assert SOURCE.splitlines()[function.end_line - 1] == "}"


def test_a_macro_ends_with_its_last_line_and_has_no_comment() -> None:
    (macro,) = named("LIMIT")
    assert macro.text.split() == ["#define", "LIMIT(x)", "((x)", "+", "\\", "EXTRA)"]
    assert macro.is_called
    assert "EXTRA" in macro.words


def test_words_tell_calls_tags_and_names_apart() -> None:
    deep = named("width")[1]
    assert {"deep(", "struct shelf", "shelf"} <= deep.words
    assert "struct book" in named("struct shelf")[0].words
    assert "LIMIT(" in named("struct shelf")[0].words


def test_functions_know_their_parameters_and_prototype() -> None:
    (function,) = named("first")
    assert function.parameters == ("shelf", "mark_count")
    assert function.prototype.endswith("struct book *first(struct shelf *shelf, int mark_count);")
