"""Parts of a kernel that are compiled and judged: files, shim and configuration of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, eq=False)
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
        own_code: what the shim stands for elsewhere, and the tree's own code decides here.
        arguments: parameters of the tree's functions that the shim offers beside the allocator's.
        questions: what the model asks of the part; the shim has each one's number.
    """

    name: str
    homes: tuple[str, ...] = ("mm/page_alloc.c",)
    sources: tuple[str, ...] = ()
    before_types: tuple[str, ...] = ("basics.h", "types.h")
    after_types: tuple[str, ...] = ("machine.h",)
    behind_functions: tuple[str, ...] = ("event_log.c", "state.c", "operations.c", "sizes.c")
    by_address: tuple[str, ...] = ()
    definitions: Mapping[str, int] = field(default_factory=dict)
    own_code: frozenset[str] = frozenset()
    arguments: frozenset[str] = frozenset()
    questions: tuple[str, ...] = ()


ALLOCATION = Part(name="allocation")
"""The allocator alone."""

RECLAIM = Part(
    name="reclaim",
    homes=("mm/page_alloc.c", "mm/vmscan.c"),
    sources=(
        "include/linux/vm_event_item.h",
        "include/linux/compaction.h",
        "include/linux/swap.h",
        "mm/compaction.c",
    ),
    before_types=("basics.h", "types.h", "reclaim_types.h"),
    after_types=("machine.h", "reclaim.h"),
    behind_functions=("event_log.c", "state.c", "operations.c", "sizes.c", "reclaim.c"),
    definitions={"SHIM_RECLAIM": 1, "__KERNEL__": 1, "CONFIG_COMPACTION": 1, "CONFIG_SWAP": 1},
    own_code=frozenset({"wakeup_kswapd", "kswapd_test_hopeless", "kswapd_clear_hopeless"}),
    arguments=frozenset({"p", "zonelist", "nodemask"}),
)
"""What balances a node: kswapd, direct reclaim, and what they look at of LRU lists."""

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

ELASTIC = Part(
    name="elastic replay",
    behind_functions=("event_log.c", "state.c", "operations.c", "sizes.c", "under_pressure.c"),
    definitions={"CONFIG_COMPACTION": 1, "SHIM_SHARED": 1},
    arguments=frozenset({"cpu"}),
    questions=(
        "fast_flags",
        "slow_flags",
        "page",
        "free",
        "isolate",
        "mark_movable",
        "drain",
        "drain_all",
        "unreserve",
        "tick",
        "grow",
        "set_high",
        "list_head",
        "list_tail",
        "move_head",
        "move_tail",
    ),
)
"""The allocator under the model's reclaim and compaction, which work on its pages."""
