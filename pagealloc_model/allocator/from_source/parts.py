"""Parts of a kernel that are compiled and judged: files, shim and configuration of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Part:
    """What is compiled together.

    Attributes:
        name: as verdicts print it.
        homes: files whose static functions the shim names.
        sources: files of the tree that are looked into beside those of the allocator.
        before_types: files of the shim that come before the kernel's types.
        after_types: those behind the types, before the functions.
        behind_functions: those behind the functions.
        by_address: functions that others pass on without calling them.
        definitions: macros beside those of the machine's configuration.
    """

    name: str
    homes: tuple[str, ...] = ("mm/page_alloc.c",)
    sources: tuple[str, ...] = ()
    before_types: tuple[str, ...] = ("basics.h", "types.h")
    after_types: tuple[str, ...] = ("machine.h",)
    behind_functions: tuple[str, ...] = ("event_log.c", "state.c", "operations.c", "sizes.c")
    by_address: tuple[str, ...] = ()
    definitions: Mapping[str, int] = field(default_factory=dict)


ALLOCATION = Part(name="allocation")
"""The allocator alone."""

COMPACTION = Part(
    name="compaction",
    homes=("mm/page_alloc.c", "mm/compaction.c"),
    sources=("include/linux/compaction.h", "mm/compaction.c"),
    after_types=("machine.h", "compaction.h"),
    behind_functions=("event_log.c", "state.c", "operations.c", "sizes.c", "compaction.c"),
    by_address=("compaction_alloc", "compaction_free"),
    definitions={"CONFIG_COMPACTION": 1, "CONFIG_COMPACT_UNEVICTABLE_DEFAULT": 1},
)
"""The allocator with compaction, direct and kcompactd's."""
