"""pagealloc_model: a trace-driven model of the Linux page allocator.

Open a recording (`open`), replay it under a policy (`replay`), and see how far the model is from
what was recorded (`validate`) and what a policy changes (`compare`, `sweep`, `explore`). What is
about one recording or one replay is a method of it. Names load on first use, so that importing the
package needs neither numba nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.garbage import not_collecting
from pagealloc_model.base.version import __version__

if TYPE_CHECKING:
    from pagealloc_model import loads as synthetic
    from pagealloc_model.allocator.hooks import Hooks
    from pagealloc_model.base.errors import PageallocError, PolicyError, RecordingError, UsageError
    from pagealloc_model.guests.experiment import experiment
    from pagealloc_model.kernel_source.build import KernelBuild
    from pagealloc_model.notebook.explore import explore
    from pagealloc_model.numbers import locks
    from pagealloc_model.numbers.comparison import compare
    from pagealloc_model.numbers.explanation import explain
    from pagealloc_model.numbers.validation import validate
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.policy.policy import Assumptions, Policy
    from pagealloc_model.predicted.replay import Cancelled, Replay, replay
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.recording import open_recording as open
    from pagealloc_model.sweeps import fleets
    from pagealloc_model.sweeps.sweep import sweep

_PLACES = {
    "Assumptions": ("policy.policy", "Assumptions"),
    "Cancelled": ("predicted.replay", "Cancelled"),
    "Hooks": ("allocator.hooks", "Hooks"),
    "KernelBuild": ("kernel_source.build", "KernelBuild"),
    "KernelRules": ("policy.kernel_rules", "KernelRules"),
    "PageallocError": ("base.errors", "PageallocError"),
    "Policy": ("policy.policy", "Policy"),
    "PolicyError": ("base.errors", "PolicyError"),
    "Recording": ("recording.recording", "Recording"),
    "RecordingError": ("base.errors", "RecordingError"),
    "Replay": ("predicted.replay", "Replay"),
    "UsageError": ("base.errors", "UsageError"),
    "compare": ("numbers.comparison", "compare"),
    "experiment": ("guests.experiment", "experiment"),
    "explain": ("numbers.explanation", "explain"),
    "explore": ("notebook.explore", "explore"),
    "fleets": ("sweeps.fleets", ""),
    "locks": ("numbers.locks", ""),
    "open": ("recording.recording", "open_recording"),
    "replay": ("predicted.replay", "replay"),
    "sweep": ("sweeps.sweep", "sweep"),
    "synthetic": ("loads", ""),
    "validate": ("numbers.validation", "validate"),
}
"""Public names, and the module and the name there that they are loaded from; "": the module."""

__all__ = [
    "Assumptions",
    "Cancelled",
    "Hooks",
    "KernelBuild",
    "KernelRules",
    "PageallocError",
    "Policy",
    "PolicyError",
    "Recording",
    "RecordingError",
    "Replay",
    "UsageError",
    "__version__",
    "compare",
    "experiment",
    "explain",
    "explore",
    "fleets",
    "locks",
    "open",
    "replay",
    "sweep",
    "synthetic",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place, attribute = _PLACES[name]
    with not_collecting():
        module = import_module(f"{__name__}.{place}")
    found = globals()[name] = getattr(module, attribute) if attribute else module
    return found


def __dir__() -> list[str]:
    return __all__
