"""gfp flag names for recordings without format data, such as `perf script` text (S2.3, S2.4)."""

from __future__ import annotations

from types import MappingProxyType

LAST_STABLE_BIT = 0x800000

_BITS = {
    "__GFP_DMA": 0x1,
    "__GFP_HIGHMEM": 0x2,
    "__GFP_DMA32": 0x4,
    "__GFP_MOVABLE": 0x8,
    "__GFP_RECLAIMABLE": 0x10,
    "__GFP_HIGH": 0x20,
    "__GFP_IO": 0x40,
    "__GFP_FS": 0x80,
    "__GFP_ZERO": 0x100,
    "__GFP_DIRECT_RECLAIM": 0x400,
    "__GFP_KSWAPD_RECLAIM": 0x800,
    "__GFP_RECLAIM": 0xC00,
    "__GFP_WRITE": 0x1000,
    "__GFP_NOWARN": 0x2000,
    "__GFP_RETRY_MAYFAIL": 0x4000,
    "__GFP_NOFAIL": 0x8000,
    "__GFP_NORETRY": 0x10000,
    "__GFP_MEMALLOC": 0x20000,
    "__GFP_COMP": 0x40000,
    "__GFP_NOMEMALLOC": 0x80000,
    "__GFP_HARDWALL": 0x100000,
    "__GFP_THISNODE": 0x200000,
    "__GFP_ACCOUNT": 0x400000,
    "__GFP_ZEROTAGS": 0x800000,
}

_COMPOSITES = {
    "GFP_NOIO": 0xC00,
    "GFP_NOFS": 0xC40,
    "GFP_KERNEL": 0xCC0,
    "GFP_KERNEL_ACCOUNT": 0x400CC0,
    "GFP_USER": 0x100CC0,
    "GFP_HIGHUSER": 0x100CC2,
    "GFP_HIGHUSER_MOVABLE": 0x100CCA,
    "GFP_TRANSHUGE_LIGHT": 0x1C20CA,
    "GFP_TRANSHUGE": 0x1C24CA,
    "GFP_DMA": 0x1,
    "GFP_DMA32": 0x4,
}

_RECENT = {"GFP_ATOMIC": 0x820, "GFP_NOWAIT": 0x2800}
_BEFORE_6_12 = {"GFP_ATOMIC": 0xA20, "GFP_NOWAIT": 0x800, "__GFP_ATOMIC": 0x200}

UNSTABLE_NAMES = frozenset(
    {
        "__GFP_SKIP_ZERO",
        "__GFP_SKIP_KASAN",
        "__GFP_SKIP_KASAN_POISON",
        "__GFP_SKIP_KASAN_UNPOISON",
        "__GFP_NOLOCKDEP",
        "__GFP_NO_OBJ_EXT",
    }
)
"""Names above `LAST_STABLE_BIT`: their bits depend on kernel version and configuration."""


def stable_gfp_bits(release: tuple[int, int] | None) -> MappingProxyType[str, int]:
    """Names and masks that mean the same in every kernel from 6.1 on, and the two that do not.

    GFP_ATOMIC and GFP_NOWAIT follow 6.1 for a release before 6.12, else 6.12 (S2.4). The bits of
    `UNSTABLE_NAMES` inside composites are left out.

    Args:
        release: major and minor kernel version, None if unknown.
    """
    varying = _BEFORE_6_12 if release is not None and release < (6, 12) else _RECENT
    return MappingProxyType({**_BITS, **_COMPOSITES, **varying})
