"""Names for studies of one's own beside those at the top: intervals, starts, tables and mails.

The scripts in notebooks/studies use no others. Each name loads on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = {
    "allocator.hooks": "are_compiled",
    "allocator.layout": "LOG_COLUMNS LOG_WORK SITE_REFILL WORK WORK_SCANNED",
    "allocator.objects": "AT_START GROWN",
    "allocator.pressure_layout": "ACTIVE_FILE INACTIVE_FILE",
    "base.progress_bar": "Report progress",
    "base.table": "Column Table",
    "base.text": "NOT_AVAILABLE WIDTH count_of number paragraph percent",
    "measured.costs": "at_recorded_cost recorded_costs recorded_reclaim_ns",
    "measured.measured": "Measured snapshot_tables",
    "measured.rules": "choose_rules",
    "notebook.controls": "PolicyControls number_slider",
    "notebook.view": "Compute Explorer Progress View",
    "policy": "ElasticAssumptions OwnershipOptions",
    "policy.policy": "policy_settings",
    "predicted.carrier": "ModelCarrier",
    "predicted.demand.demand": "Demand",
    "predicted.demand.elastic": "with_recorded_survivors",
    "predicted.lock_times": "LockModel LockTimes",
    "predicted.prepared": "Prepared forget_prepared prepare",
    "recording.machine": "GIB_PAGES Machine min_free_kbytes_at_boot",
    "recording.proc": "pages",
    "recording.recorded_machine": "effective_policy recorded_machine start_snapshots",
    "recording.recording": "SNAPSHOT_DIRECTORY shipped_recordings_directory",
    "recording.snapshot": "Snapshot",
    "recording.trace.columns": "Event Trace",
    "show": "figures",
    "show.figures.faceted": (
        "Drawing FigureFunction INK Lane PREDICTION_COLOURS PanelGrid line_trace"
    ),
    "show.post": "comparison_table posted_figures",
    "show.post.message": "Block Fixed Message Section Words command",
    "show.post.tables": "MARKS",
    "guests.experiment": (
        "CHANGES_FILE ExperimentResult MODES RUNS_FILE check_same_machine measured_values "
        "predicted_values score_table"
    ),
    "guests.plan": "find_plan pairs_of read_plan sides_of",
    "guests.runs": "DONE FAILED Run kept_runs",
    "sweeps": "one_at_a_time",
    "numbers.comparison": (
        "BELIEVED Change FAILS_NULL half_width model_errors recorded_values repeated"
    ),
    "numbers.locks": "lock_policy_table",
    "numbers.quantities": (
        "ADDED Quantity States TIMES TYPES Window blocks_added blocks_from counter_changes "
        "free_by_type recorded_quantities thp_success"
    ),
    "numbers.result_tables": "DISTANCE",
    "numbers.statistics": (
        "EFFECTS NO_EFFECT RIGHT SHARE WITHIN WRONG change_interval mean_interval relative "
        "resampled_interval scaled verdict"
    ),
    "numbers.validation": "Validation",
}
"""Modules of the package, and their names that are public here."""

_PLACES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = f"pagealloc_model.{_PLACES[name]}"
    member = getattr(import_module(module), name, None)
    return import_module(f"{module}.{name}") if member is None else member
