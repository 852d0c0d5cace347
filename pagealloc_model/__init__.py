"""pagealloc_model: a trace-driven model of the Linux page allocator.

Names load on first use, so that importing the package needs neither numba nor pandas.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.version import __version__

if TYPE_CHECKING:
    from pagealloc_model.allocator.from_source.build import KernelBuild
    from pagealloc_model.allocator.hooks import Hooks
    from pagealloc_model.base.errors import PageallocError, PolicyError, RecordingError, UsageError
    from pagealloc_model.base.progress_bar import progress
    from pagealloc_model.measured.measured import Measured, measure
    from pagealloc_model.notebook.widgets.explore import explore
    from pagealloc_model.policy.assumptions import ElasticAssumptions
    from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
    from pagealloc_model.policy.lock_costs import LockCosts
    from pagealloc_model.policy.ownership_options import OwnershipOptions
    from pagealloc_model.policy.policy import Assumptions, Policy
    from pagealloc_model.predicted.checkpoints import Checkpoints
    from pagealloc_model.predicted.locks.lock_spread import with_spread
    from pagealloc_model.predicted.locks.lock_timing import LockModel, LockTimes, lock_times
    from pagealloc_model.predicted.replay import Cancelled, Replay, replay
    from pagealloc_model.recording.importing import import_recording
    from pagealloc_model.recording.machine import Machine
    from pagealloc_model.recording.make.perf_python.live import live
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.recording.recording import open_recording as open
    from pagealloc_model.recording.trace.columns import Trace
    from pagealloc_model.recording.trim import trim_recording
    from pagealloc_model.studies.fleets.fleet import fleet
    from pagealloc_model.studies.fleets.results import FleetResult
    from pagealloc_model.studies.fleets.synthetic_hosts import SyntheticHosts
    from pagealloc_model.studies.sweeps.points import one_at_a_time, space_filling
    from pagealloc_model.studies.sweeps.results import SweepResult
    from pagealloc_model.studies.sweeps.sweep import sweep
    from pagealloc_model.studies.workload.event_stream import EventStream
    from pagealloc_model.studies.workload.made_up_scenario import made_up_scenario
    from pagealloc_model.studies.workload.run import ScenarioRun, run_scenario
    from pagealloc_model.studies.workload.run_stream import StreamRun, run_stream
    from pagealloc_model.studies.workload.scale_up import judged_scale_up, scaled_stream, scaled_up
    from pagealloc_model.studies.workload.scenario import Scenario
    from pagealloc_model.verdict.choices.placement import Placement, judge_placement
    from pagealloc_model.verdict.comparison import Comparison, compare
    from pagealloc_model.verdict.lock_comparison import LockComparison, compare_locks
    from pagealloc_model.verdict.lock_policies import lock_policy_table
    from pagealloc_model.verdict.validation import Validation, validate

_PLACES = {
    "Assumptions": ("policy.policy", "Assumptions"),
    "Recording": ("recording.recording", "Recording"),
    "Cancelled": ("predicted.replay", "Cancelled"),
    "Checkpoints": ("predicted.checkpoints", "Checkpoints"),
    "Comparison": ("verdict.comparison", "Comparison"),
    "ElasticAssumptions": ("policy.assumptions", "ElasticAssumptions"),
    "EventStream": ("studies.workload.event_stream", "EventStream"),
    "FleetResult": ("studies.fleets.results", "FleetResult"),
    "Hooks": ("allocator.hooks", "Hooks"),
    "KernelBuild": ("allocator.from_source.build", "KernelBuild"),
    "KernelRules": ("policy.kernel_rules", "KernelRules"),
    "LockComparison": ("verdict.lock_comparison", "LockComparison"),
    "LockCosts": ("policy.lock_costs", "LockCosts"),
    "LockModel": ("predicted.locks.lock_timing", "LockModel"),
    "LockTimes": ("predicted.locks.lock_timing", "LockTimes"),
    "Machine": ("recording.machine", "Machine"),
    "Measured": ("measured.measured", "Measured"),
    "OwnershipOptions": ("policy.ownership_options", "OwnershipOptions"),
    "PageallocError": ("base.errors", "PageallocError"),
    "Placement": ("verdict.choices.placement", "Placement"),
    "Policy": ("policy.policy", "Policy"),
    "PolicyError": ("base.errors", "PolicyError"),
    "RecordingError": ("base.errors", "RecordingError"),
    "Replay": ("predicted.replay", "Replay"),
    "Scenario": ("studies.workload.scenario", "Scenario"),
    "ScenarioRun": ("studies.workload.run", "ScenarioRun"),
    "StreamRun": ("studies.workload.run_stream", "StreamRun"),
    "SweepResult": ("studies.sweeps.results", "SweepResult"),
    "SyntheticHosts": ("studies.fleets.synthetic_hosts", "SyntheticHosts"),
    "Trace": ("recording.trace.columns", "Trace"),
    "UsageError": ("base.errors", "UsageError"),
    "Validation": ("verdict.validation", "Validation"),
    "compare": ("verdict.comparison", "compare"),
    "compare_locks": ("verdict.lock_comparison", "compare_locks"),
    "explore": ("notebook.widgets.explore", "explore"),
    "fleet": ("studies.fleets.fleet", "fleet"),
    "import_recording": ("recording.importing", "import_recording"),
    "judge_placement": ("verdict.choices.placement", "judge_placement"),
    "judged_scale_up": ("studies.workload.scale_up", "judged_scale_up"),
    "lock_policy_table": ("verdict.lock_policies", "lock_policy_table"),
    "lock_times": ("predicted.locks.lock_timing", "lock_times"),
    "made_up_scenario": ("studies.workload.made_up_scenario", "made_up_scenario"),
    "live": ("recording.make.perf_python.live", "live"),
    "measure": ("measured.measured", "measure"),
    "one_at_a_time": ("studies.sweeps.points", "one_at_a_time"),
    "open": ("recording.recording", "open_recording"),
    "preset_names": ("policy.kernel_rules", "preset_names"),
    "progress": ("base.progress_bar", "progress"),
    "replay": ("predicted.replay", "replay"),
    "run_scenario": ("studies.workload.run", "run_scenario"),
    "run_stream": ("studies.workload.run_stream", "run_stream"),
    "scaled_stream": ("studies.workload.scale_up", "scaled_stream"),
    "scaled_up": ("studies.workload.scale_up", "scaled_up"),
    "space_filling": ("studies.sweeps.points", "space_filling"),
    "sweep": ("studies.sweeps.sweep", "sweep"),
    "trim_recording": ("recording.trim", "trim_recording"),
    "validate": ("verdict.validation", "validate"),
    "with_spread": ("predicted.locks.lock_spread", "with_spread"),
}

__all__ = [
    "Assumptions",
    "Cancelled",
    "Checkpoints",
    "Comparison",
    "ElasticAssumptions",
    "EventStream",
    "FleetResult",
    "Hooks",
    "KernelBuild",
    "KernelRules",
    "LockComparison",
    "LockCosts",
    "LockModel",
    "LockTimes",
    "Machine",
    "Measured",
    "OwnershipOptions",
    "PageallocError",
    "Placement",
    "Policy",
    "PolicyError",
    "Recording",
    "RecordingError",
    "Replay",
    "Scenario",
    "ScenarioRun",
    "StreamRun",
    "SweepResult",
    "SyntheticHosts",
    "Trace",
    "UsageError",
    "Validation",
    "__version__",
    "compare",
    "compare_locks",
    "explore",
    "fleet",
    "import_recording",
    "judge_placement",
    "judged_scale_up",
    "live",
    "lock_policy_table",
    "lock_times",
    "made_up_scenario",
    "measure",
    "one_at_a_time",
    "open",
    "preset_names",
    "progress",
    "replay",
    "run_scenario",
    "run_stream",
    "scaled_stream",
    "scaled_up",
    "space_filling",
    "sweep",
    "trim_recording",
    "validate",
    "with_spread",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(import_module(f"{__name__}.{module}"), attribute)


def __dir__() -> list[str]:
    return __all__
