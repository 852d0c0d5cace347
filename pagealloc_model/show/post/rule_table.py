"""Kernel rules, their values and what each rests on, as lines to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pagealloc_model.base.text.layout import INDENT, paragraph

if TYPE_CHECKING:
    from pagealloc_model.measured.evidence.choice import RuleEvidence


def rule_table(evidence: Sequence[RuleEvidence]) -> str:
    """Rules gathered by what they rest on, each with its value and what the events say of it."""
    lines = []
    for reason in dict.fromkeys((each.standing, each.line) for each in evidence):
        standing, line = reason
        lines.append(paragraph(f"{standing}: {line}", label=INDENT))
        for each in evidence:
            if (each.standing, each.line) == reason:
                lines.append(f"{INDENT * 2}{each.rule} = {str(each.value).lower()}")
                if each.check:
                    lines.append(paragraph(each.check, label=INDENT * 3))
    return "\n".join(lines)
