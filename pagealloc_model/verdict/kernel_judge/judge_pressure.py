"""The parts of pressure judged by the kernel's own code, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pagealloc_model.allocator.from_source.source_tree import SourceTree
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.verdict.kernel_judge.judge_compaction import judge_compaction
from pagealloc_model.verdict.kernel_judge.judge_reclaim import judge_reclaim
from pagealloc_model.verdict.kernel_judge.judged_scenarios import Verdict


class PressureJudge(Protocol):
    """A judge of one part."""

    def __call__(
        self,
        tree: SourceTree,
        rules: KernelRules,
        *,
        operations: int,
        seed: int = 0,
        progress: Callable[[float], None] | None = None,
    ) -> Verdict:
        """Take random operations until a difference, or until enough were taken."""


JUDGES: tuple[PressureJudge, ...] = (judge_compaction, judge_reclaim)
"""The judges, in the order in which they are asked."""


def judge_pressure(
    tree: SourceTree,
    rules: KernelRules,
    *,
    operations: int,
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> tuple[Verdict, ...]:
    """Ask every judge; return their verdicts, the last one the first that found a difference.

    Args:
        tree: whose code judges.
        rules: of the model.
        operations: how many for each part.
        seed: decides every machine and operation.
        progress: called with the share done.

    Raises:
        KernelSourceError: the tree lacks functions or does not compile.
    """
    verdicts: list[Verdict] = []
    for number, judge in enumerate(JUDGES):

        def report(share: float, before: int = number) -> None:
            if progress is not None:
                progress((before + share) / len(JUDGES))

        verdicts.append(judge(tree, rules, operations=operations, seed=seed, progress=report))
        if verdicts[-1].difference is not None:
            break
    return tuple(verdicts)
