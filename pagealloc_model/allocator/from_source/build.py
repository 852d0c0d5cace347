"""A kernel tree as a policy: what its allocator would do with a recorded demand."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from pagealloc_model.allocator.core.state import State
from pagealloc_model.allocator.from_source.compiled_tree import CompiledTree
from pagealloc_model.allocator.from_source.extraction import SHIM
from pagealloc_model.allocator.from_source.kernel_state import KernelState
from pagealloc_model.allocator.from_source.source_tree import SOURCES, SourceTree, open_tree
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Policy

DECIDED_BY_SOURCE = (
    "highatomic_gate_order",
    "highatomic_reserve_percent",
    "highatomic_from_pcp",
    "pcp_free_batched",
    "pageblock_ownership",
    "ownership",
)
"""Policy fields that a kernel has no setting for: its source says what happens."""

NOT_COVERED = (
    "the loop of __alloc_pages_slowpath: attempts are made in the model's order (S8), without "
    "compaction and the OOM killer; direct reclaim frees what the recording says",
    "kswapd: its runs are the recording's, or begin and end by pgdat_balanced() alone",
    "contention: every lock, trylocks of per-CPU lists included, is free",
    "folio batches: pages are freed one by one",
    "cpusets, dirty limits, node reclaim, unaccepted memory, guard pages, page reporting, shuffled "
    "lists, page checks, and hooks of debugging, memcg, KASAN and page_owner",
    "sizes of zones and page sets, watermarks and zonelists: they are the recording's and the "
    "policy's, not what the tree's set-up code would make of them",
)
"""What a replay through a kernel's code leaves to the shim."""


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
        return _compiled(self.source, _source_digest(self.source))

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
def _compiled(source: SourceTree, digest: str) -> CompiledTree:
    return CompiledTree(source)
