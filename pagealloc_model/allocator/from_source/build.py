"""A kernel tree as a policy: what its allocator would do with a recorded demand."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.extraction import SHIM
from pagealloc_model.allocator.from_source.kernel_state import KernelState
from pagealloc_model.allocator.from_source.parts import ALLOCATION, ELASTIC, Part
from pagealloc_model.allocator.from_source.source_tree import SOURCES, SourceTree, open_tree
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy

if TYPE_CHECKING:
    import numpy as np

    from pagealloc_model.allocator.from_source.pressed_kernel import PressedKernelState

DECIDED_BY_SOURCE = (
    "highatomic_gate_order",
    "highatomic_reserve_percent",
    "highatomic_from_pcp",
    "highatomic_fastpath",
    "highatomic_slowpath_only",
    "pcp_free_batched",
    "pageblock_ownership",
    "ownership",
)
"""Policy fields that a kernel has no setting for: its source says what happens."""

NOT_COVERED = (
    "the loop of __alloc_pages_slowpath: attempts are made in the model's order (S8), without "
    "compaction and the OOM killer; direct reclaim frees what the recording says",
    "kswapd: its runs are the recording's, or begin and end by pgdat_balanced() alone",
    "what compaction takes and captures: it is asked for as ordinary requests of its zone",
    "contention: every lock, trylocks of per-CPU lists included, is free",
    "folio batches: pages are freed one by one",
    "cpusets, dirty limits, node reclaim, unaccepted memory, guard pages, page reporting, shuffled "
    "lists, page checks, and hooks of debugging, memcg, KASAN and page_owner",
    "sizes of zones and page sets, watermarks and zonelists: they are the recording's and the "
    "policy's, not what the tree's set-up code would make of them",
)
"""What a replay through a kernel's code leaves to the shim."""

NOT_COVERED_UNDER_PRESSURE = (
    "reclaim, compaction, kswapd, kcompactd and the loop of __alloc_pages_slowpath: they are the "
    "model's (S8 to S10), under the rules of the tree's release; attempts, frees, drains, and what "
    "compaction isolates and captures are the tree's",
    *NOT_COVERED[3:],
)
"""What an elastic replay through a kernel's code leaves to the model and the shim."""


@dataclass(frozen=True)
class KernelBuild:
    """A kernel's source tree that takes a policy's place in `replay`; compiled on first use.

    Attributes:
        path: checkout, unpacked source package, or its tarball.
        policy: settings of that kernel; fields that only its source decides may not be given.
        patch: text or file of a patch to the tree, which stays as it is on disk.

    Raises:
        PolicyError: one of those fields is given.
        UsageError: there is no such tree, or the patch does not apply.
    """

    path: Path | str
    policy: Policy = field(default_factory=Policy)
    patch: Path | str | None = None

    def __post_init__(self) -> None:
        """Refuse what the tree's source decides, and places without a tree."""
        given = [each for each in DECIDED_BY_SOURCE if getattr(self.policy, each) is not None]
        if given:
            raise PolicyError(
                f"policy {given[0]}: a kernel build has no such setting; change its source instead"
            )
        open_tree(self.path, self.patch)

    @property
    def tree(self) -> CompiledTree:
        """The tree as it is on disk now; libraries of an unchanged one are used again."""
        return _compiled(self.source, _source_digest(self.source), ALLOCATION)

    @property
    def source(self) -> SourceTree:
        """The tree's files, patched."""
        return open_tree(self.path, self.patch)

    @property
    def rules(self) -> KernelRules:
        """Rules for what is made before the tree's code runs, such as limits of page sets."""
        return KernelRules.for_release(self.source.release)[0]

    @property
    def name(self) -> str:
        """Release, place and a digest of the sources, as results name it."""
        source = self.source
        patched = f" with {source.patch.name}" if source.patch else ""
        return f"{source.release or 'kernel'} at {source.path}{patched} ({_source_digest(source)})"

    @property
    def fingerprint(self) -> str:
        """Digest of what decides a replay through the tree, for caches of results.

        Of the tree's files that are read (any change in them counts, comments too), its release,
        the shim and the settings given; wherever the tree lies. It says nothing of the model around
        it.
        """
        source = self.source
        digest = hashlib.sha256()
        settings = sorted(self.policy.given().items())
        digest.update(f"{_source_digest(source)} {source.release} {settings}".encode())
        for each in sorted(SHIM.iterdir()):
            digest.update(each.read_bytes())
        return digest.hexdigest()[:16]

    def not_covered(self, *, elastic: bool) -> tuple[str, ...]:
        """What a replay through the tree's code leaves to the model and the shim.

        Args:
            elastic: reclaim and compaction are the model's, not the recording's.
        """
        return NOT_COVERED_UNDER_PRESSURE if elastic else NOT_COVERED

    def pressed_carrier(self, state: State, leads: np.ndarray) -> PressedKernelState:
        """The tree's code, about to carry on an elastic replay's state under the model's reclaim.

        Args:
            state: changed from now on.
            leads: int32 by object: the failure it came in place of.

        Raises:
            KernelSourceError: the tree lacks functions or does not compile.
            UsageError: no compiler, or numba is switched off.
        """
        from pagealloc_model.allocator.from_source.pressed_kernel import PressedKernelState

        tree = _compiled(self.source, _source_digest(self.source), ELASTIC)
        return PressedKernelState(tree, state, leads)

    def carrier(self, state: State) -> KernelState:
        """The tree's code, about to carry on a state.

        Raises:
            KernelSourceError: the tree lacks functions or does not compile.
            UsageError: no compiler.
        """
        return KernelState(self.tree, state)


def _source_digest(source: SourceTree) -> str:
    digest = hashlib.sha256()
    for path in SOURCES:
        digest.update((source.read(path) or "").encode())
    return digest.hexdigest()[:12]


@lru_cache(maxsize=16)
def _compiled(source: SourceTree, digest: str, part: Part) -> CompiledTree:
    return CompiledTree(source, part)
