"""Tables of gfp flags: of formats that print an enum's names, and of kernels before 5.0."""

from __future__ import annotations

import re

import pytest

from pagealloc_model.recording.trace.formats import gfp_bits_from_print_fmt, gfp_word
from tests.synthetic_perf_data import GFP_PRINT_FMT

ENUM_FMT = (
    '(REC->gfp_flags) ? __print_flags(REC->gfp_flags, "|", '
    "{( unsigned long)((( gfp_t)((((1UL))) << (___GFP_IO_BIT))) | "
    '(( gfp_t)((((1UL))) << (___GFP_FS_BIT)))), "GFP_IOFS"}, '
    '{( unsigned long)(( gfp_t)((((1UL))) << (___GFP_SKIP_KASAN_BIT))), "__GFP_SKIP_KASAN"}, '
    "{( unsigned long)((( gfp_t)((((1UL))) << (___GFP_HIGH_BIT))) | "
    '(( gfp_t)((((1UL))) << (___GFP_SKIP_KASAN_BIT)))), "GFP_BOTH"}, { 0, ((void *)0) } )'
)


def test_names_of_an_enum_are_the_bits_that_all_kernels_share() -> None:
    assert gfp_bits_from_print_fmt(ENUM_FMT) == {"GFP_IOFS": 0xC0, "GFP_BOTH": 0x20}


def test_numbers_and_names_give_the_same_table() -> None:
    names = {"5": "HIGH", "6": "IO", "10": "DIRECT_RECLAIM", "11": "KSWAPD_RECLAIM"}
    written = re.sub(
        r"<< \((\d+)\)",
        lambda bit: f"<< (___GFP_{names[bit[1]]}_BIT)" if bit[1] in names else bit[0],
        GFP_PRINT_FMT,
    )
    assert written != GFP_PRINT_FMT
    assert gfp_bits_from_print_fmt(written) == gfp_bits_from_print_fmt(GFP_PRINT_FMT)


@pytest.mark.parametrize(
    ("text", "release", "word", "left_out"),
    [
        ("GFP_ATOMIC|__GFP_COMP", (6, 12), 0x40820, ()),
        ("GFP_ATOMIC", (5, 10), 0xA20, ()),
        ("GFP_KERNEL|__GFP_CMA|0x8000000", (5, 10), 0xCC0, ("__GFP_CMA", "0x8000000")),
        ("0x2084020", (4, 4), 0x40A20, ()),  # GFP_ATOMIC|__GFP_COMP
        ("0x24040c0", (4, 4), 0x40CC0, ()),  # GFP_KERNEL|__GFP_COMP
        ("0x20", (4, 1), 0x820, ()),  # GFP_ATOMIC: __GFP_HIGH alone
        ("0xd0", (4, 1), 0xCC0, ()),  # GFP_KERNEL: __GFP_WAIT, __GFP_IO, __GFP_FS
        ("0xcc0", (6, 1), 0xCC0, ()),
        ("none", None, 0, ()),
    ],
)
def test_a_gfp_word_is_in_the_bits_of_today(
    text: str, release: tuple[int, int] | None, word: int, left_out: tuple[str, ...]
) -> None:
    assert gfp_word(text, release) == (word, left_out)
