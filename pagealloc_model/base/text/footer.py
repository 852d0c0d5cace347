"""What every posted table ends with: what it was made from and what was not counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.layout import WIDTH, paragraph


@dataclass(frozen=True, kw_only=True)
class Footer:
    """Provenance of one table.

    Attributes:
        recording: name (and hash, if wanted) of the recording.
        kernel: release that was recorded, and the rules it was replayed under.
        policy_difference: such as "highatomic_gate_order: as recorded -> 3".
        version: of this package.
        lost_events: events the recording lost.
        divergences: count by kind, where the replay could not follow the recording.
        runs: recordings behind each column.
        assumptions: what was assumed, in words.
        doubts: what of the recording is in doubt or refused, one line each.
    """

    recording: str
    kernel: str
    policy_difference: str
    version: str
    lost_events: int
    divergences: Mapping[str, int] = field(default_factory=dict)
    runs: int = 1
    assumptions: str = ""
    doubts: tuple[str, ...] = ()

    def to_text(self, width: int = WIDTH) -> str:
        """Labelled lines."""
        counted = [f"{name} {count}" for name, count in self.divergences.items() if count]
        lines = {
            "recording": self.recording,
            "kernel": self.kernel,
            "policy": self.policy_difference,
            "assumed": self.assumptions,
            "lost": f"{count_of(self.lost_events, 'event')} in the recording",
            "doubtful": "; ".join(self.doubts),
            "diverged": ", ".join(counted) or "nowhere",
            "made with": f"pagealloc_model {self.version}, {_runs_words(self.runs)}",
        }
        return "\n".join(
            paragraph(text, width=width, label=f"{label + ':':<11}")
            for label, text in lines.items()
            if text
        )


def _runs_words(runs: int) -> str:
    if runs == 1:
        return "one run per column: no significance test"
    return f"{runs} runs per column"
