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
    from pagealloc_model.recording.recording import Bundle
    from pagealloc_model.recording.recording import open_recording as open
    from pagealloc_model.recording.trace.columns import Trace
    from pagealloc_model.recording.trim import trim_bundle
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
    "Assumptions": ("policy", "Assumptions"),
    "Bundle": ("bundle", "Bundle"),
    "Cancelled": ("prediction", "Cancelled"),
    "Checkpoints": ("checkpoints", "Checkpoints"),
    "Comparison": ("comparison", "Comparison"),
    "ElasticAssumptions": ("assumptions", "ElasticAssumptions"),
    "EventStream": ("workload.event_stream", "EventStream"),
    "FleetResult": ("fleets.results", "FleetResult"),
    "Hooks": ("hooks", "Hooks"),
    "KernelBuild": ("kernel_build.build", "KernelBuild"),
    "KernelRules": ("kernel_rules", "KernelRules"),
    "LockComparison": ("lock_comparison", "LockComparison"),
    "LockCosts": ("lock_costs", "LockCosts"),
    "LockModel": ("lock_timing", "LockModel"),
    "LockTimes": ("lock_timing", "LockTimes"),
    "Machine": ("machine", "Machine"),
    "Measured": ("measured", "Measured"),
    "OwnershipOptions": ("ownership_options", "OwnershipOptions"),
    "PageallocError": ("errors", "PageallocError"),
    "Placement": ("placement", "Placement"),
    "Policy": ("policy", "Policy"),
    "PolicyError": ("errors", "PolicyError"),
    "RecordingError": ("errors", "RecordingError"),
    "Replay": ("prediction", "Replay"),
    "Scenario": ("workload.scenario", "Scenario"),
    "ScenarioRun": ("workload.run", "ScenarioRun"),
    "StreamRun": ("workload.run_stream", "StreamRun"),
    "SweepResult": ("sweeps.results", "SweepResult"),
    "SyntheticHosts": ("fleets.synthetic_hosts", "SyntheticHosts"),
    "Trace": ("trace.columns", "Trace"),
    "UsageError": ("errors", "UsageError"),
    "Validation": ("validation", "Validation"),
    "compare": ("comparison", "compare"),
    "compare_locks": ("lock_comparison", "compare_locks"),
    "explore": ("widgets.explore", "explore"),
    "fleet": ("fleets.fleet", "fleet"),
    "import_recording": ("importing", "import_recording"),
    "judge_placement": ("placement", "judge_placement"),
    "judged_scale_up": ("workload.scale_up", "judged_scale_up"),
    "lock_policy_table": ("lock_policies", "lock_policy_table"),
    "lock_times": ("lock_timing", "lock_times"),
    "made_up_scenario": ("workload.made_up_scenario", "made_up_scenario"),
    "live": ("perf_python.live", "live"),
    "measure": ("measured", "measure"),
    "one_at_a_time": ("sweeps.points", "one_at_a_time"),
    "open": ("bundle", "open_recording"),
    "preset_names": ("kernel_rules", "preset_names"),
    "progress": ("progress_bar", "progress"),
    "replay": ("prediction", "replay"),
    "run_scenario": ("workload.run", "run_scenario"),
    "run_stream": ("workload.run_stream", "run_stream"),
    "scaled_stream": ("workload.scale_up", "scaled_stream"),
    "scaled_up": ("workload.scale_up", "scaled_up"),
    "space_filling": ("sweeps.points", "space_filling"),
    "sweep": ("sweeps.sweep", "sweep"),
    "trim_bundle": ("trim", "trim_bundle"),
    "validate": ("validation", "validate"),
    "with_spread": ("lock_spread", "with_spread"),
}

__all__ = [
    "Assumptions",
    "Bundle",
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
    "trim_bundle",
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
