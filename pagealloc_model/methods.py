"""Methods of `Recording`, `Replay` and `Validation` that files after theirs carry out.

A room imports no later room, yet a user looks for `rec.measure()` at the recording. So the classes
inherit these methods from here, beside the rooms, and each imports what does its work when it is
called. Nothing else belongs here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagealloc_model.base.progress_bar import Report
    from pagealloc_model.measured.measured import Measured
    from pagealloc_model.policy.kernel_rules import KernelRules
    from pagealloc_model.policy.policy import Assumptions
    from pagealloc_model.predicted.locks.lock_timing import LockModel, LockTimes
    from pagealloc_model.predicted.replay import Replay
    from pagealloc_model.recording.importing import ImportResult
    from pagealloc_model.recording.trim import TrimResult
    from pagealloc_model.verdict.budget.budget import Budget
    from pagealloc_model.verdict.choices.placement import Placement
    from pagealloc_model.verdict.comparison import Comparison
    from pagealloc_model.verdict.validation import Validation


class RecordingMethods:
    """What a recording can be asked for."""

    def measure(self: Any, *, bin_ns: int = 1_000_000_000) -> Measured:
        """Return what the kernel did, in the tables that a replay predicts.

        Args:
            bin_ns: width of the bins of the `lock` table.

        Raises:
            RecordingError: the event file cannot be read.
        """
        from pagealloc_model.measured.measured import measure

        return measure(self, bin_ns=bin_ns)

    def judge_choices(
        self: Any,
        *,
        rules: KernelRules | str | None = None,
        assumptions: Assumptions | None = None,
    ) -> Placement:
        """Return how many of the kernel's choices the model makes, each from the true state.

        Args:
            rules: a series such as "6.18", rules, or None for the recorded kernel's.
            assumptions: None for the defaults.

        Raises:
            PolicyError: no rules for the recording's kernel, or a kernel before 6.12.
            UsageError: no event names a page.
            RecordingError: a file of the recording cannot be read.
        """
        from pagealloc_model.verdict.choices.placement import judge_placement

        return judge_placement(self, rules=rules, assumptions=assumptions)

    def trim(
        self: Any,
        destination: str | Path,
        *,
        start_s: float | None = None,
        seconds: float | None = None,
        events: int | None = None,
        anonymise: bool = False,
        compress: bool = True,
        keep_names: Collection[str] = (),
    ) -> TrimResult:
        """Write the part that lies in a window as a recording of its own.

        Args:
            destination: the new recording's directory, which must not exist.
            start_s: start of the window, seconds after the first page-allocator event; None: there.
            seconds: length of the window; None: to the end.
            events: end after this many page-allocator events instead.
            anonymise: remove what names the machine or its programs.
            compress: write compressed records.
            keep_names: command names that anonymising keeps besides the usual ones.

        Raises:
            UsageError: the window is impossible or empty, or the destination exists.
            RecordingError: this is damaged, or holds neither perf.data nor its columnar form.
        """
        from pagealloc_model.recording.trim import trim_recording

        return trim_recording(
            self.path,
            Path(destination),
            start_s=start_s,
            seconds=seconds,
            events=events,
            anonymise=anonymise,
            compress=compress,
            keep_names=keep_names,
        )

    def to_columns(
        self: Any,
        destination: str | Path,
        *,
        compress: bool = True,
        progress: Report | None = None,
    ) -> ImportResult:
        """Write the recording with its events in columnar form, which opens at once.

        Args:
            destination: a new directory, or a new file NAME.arrow for the events alone.
            compress: write columns compressed; others are used where they lie.
            progress: called with the share done, 0 to 1.

        Raises:
            RecordingError: this cannot be read.
            UsageError: the destination exists or cannot be written.
        """
        from pagealloc_model.recording.importing import import_recording

        return import_recording(self.path, Path(destination), compress=compress, progress=progress)


class ReplayMethods:
    """What a replay can be asked for besides its tables."""

    def compare(self: Any, patch: Replay) -> Comparison:
        """Return this replay as the base, and another one beside it.

        Args:
            patch: of the same recording under another policy.

        Raises:
            UsageError: the replays differ in more than the policy.
        """
        from pagealloc_model.verdict.comparison import compare

        return compare(self, patch)

    def lock_times(self: Any, model: LockModel | None = None) -> LockTimes:
        """Return every acquisition of zone->lock with the time that it takes.

        Args:
            model: costs and rules of the queue; None for the defaults, whose costs are assumed.
        """
        from pagealloc_model.predicted.locks.lock_timing import lock_times

        return lock_times(self, model)


class ValidationMethods:
    """What a validation can be asked for besides its table."""

    def budget(self: Any, windows: Sequence[Validation] | None = None) -> Budget:
        """Return what remains of each error when the recording's own truth is imposed.

        Args:
            windows: validations of the recording's loss-free windows; None makes them if needed.
        """
        from pagealloc_model.verdict.budget.budget import error_budget

        return error_budget(self, windows)
