"""A comparison as a complete message: what, on what, results, caveats, how to reproduce."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import pandas as pd

from pagealloc_model.base.text.charts import ASCII, UTF8
from pagealloc_model.base.text.comparison_table import Style, comparison_table
from pagealloc_model.base.text.counts import count_of
from pagealloc_model.base.text.error_table import error_table
from pagealloc_model.base.text.layout import paragraph
from pagealloc_model.policy.policy import Assumptions, policy_settings
from pagealloc_model.show.post.message import Block, Fixed, Message, Section, Words, command
from pagealloc_model.show.post.predicted_charts import predicted_charts
from pagealloc_model.show.post.repeated_table import repeated_table
from pagealloc_model.verdict.comparison import RepeatedComparison, repeated
from pagealloc_model.verdict.recorded_values import recorded_values

if TYPE_CHECKING:
    from pagealloc_model.policy.policy_fields import Setting
    from pagealloc_model.recording.recording import Recording
    from pagealloc_model.verdict.comparison import Comparison
    from pagealloc_model.verdict.validation import Validation

SHOWN_ERRORS = (
    "order_distribution_tv",
    "free_pages",
    "refill_pages",
    "refill_transactions",
    "drain_pages",
    "drain_transactions",
    "extfrag_events",
    "highatomic_blocks",
)
PREDICTED = (
    "Predicted by a trace-driven model of the page allocator; nothing below was measured under "
    "the changed policy. Both columns replay the same recorded demand: what was asked for and "
    "freed, when, and on which CPU."
)


def comparison_message(
    comparisons: Comparison | Sequence[Comparison],
    recordings: Recording | Sequence[Recording],
    *,
    validations: Sequence[Validation] = (),
    style: Style = "signed",
    utf8: bool = False,
) -> Message:
    """Everything a reader needs to judge and repeat a comparison.

    Args:
        comparisons: one per run, all of the same two policies.
        recordings: the recordings of the runs.
        validations: of those recordings, for a table of the model's own errors.
        style: of the table.
        utf8: draw charts with block characters instead of ASCII.

    Raises:
        UsageError: no comparison, or comparisons of different policies.
    """
    runs = [comparisons] if not isinstance(comparisons, Sequence) else list(comparisons)
    recordings = [recordings] if not isinstance(recordings, Sequence) else list(recordings)
    whole = repeated(runs)
    first = runs[0]
    sections = [
        Section(title="What", blocks=tuple(_what(first))),
        Section(title="On what", blocks=tuple(_on_what(recordings))),
        Section(title="Results", blocks=tuple(_results(whole, style))),
        Section(title="Charts", blocks=tuple(_charts(first, utf8))),
        Section(title="How far to believe it", blocks=tuple(_errors(validations))),
        Section(title="Assumed", blocks=tuple(_assumed(first))),
        Section(title="Reproduce", blocks=tuple(_reproduce(whole, recordings, style))),
    ]
    return Message(
        subject=_subject(first, recordings),
        sections=tuple(section for section in sections if section.blocks),
        utf8=utf8,
    )


def shown_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of a comparison that a post prints: known, and not zero on both sides."""
    known = rows["base"].notna() | rows["patch"].notna()
    return rows[known & ((rows["base"] != 0) | (rows["patch"] != 0))].reset_index(drop=True)


def _subject(comparison: Comparison, recordings: Sequence[Recording]) -> str:
    names = ", ".join(dict.fromkeys(recording.name for recording in recordings))
    return f"[predicted] {comparison.patch.asked_policy} on {names}"


def _what(comparison: Comparison) -> Iterator[Block]:
    yield Words(text=PREDICTED)
    sides = (comparison.base.policy.given(), comparison.patch.policy.given())
    recorded = recorded_values(comparison.base)
    for name, each in policy_settings().items():
        if sides[0].get(name) == sides[1].get(name):
            continue
        about = each.metadata
        unit = f" {about['unit']}" if about["unit"] else ""
        change = " -> ".join(_setting(side.get(name), recorded.get(name)) for side in sides) + unit
        text = f"{name} ({about['kernel_name']}): {change}; {about['meaning']} ({about['source']})"
        yield Words(text=text, bullet=True)


def _setting(value: Setting | None, recorded: Setting | None = None) -> str:
    if value is None:
        return "as recorded" + ("" if recorded is None else f" ({_setting(recorded)})")
    return value if isinstance(value, str) else str(int(value))


def _on_what(recordings: Sequence[Recording]) -> Iterator[Block]:
    for recording in {recording.name: recording for recording in recordings}.values():
        trace = recording.trace
        first, last = trace.span_ns
        yield Words(
            text=f"{recording.name}: kernel {recording.release or 'unknown'}, "
            f"{count_of(trace.nr_cpus, 'CPU')}, {(last - first) / 1e9:.1f} s, "
            f"{count_of(len(trace), 'page-allocator event')}, {trace.losses.total:,} lost, "
            f"{count_of(len(recording.snapshots), 'snapshot')}; "
            "SHA-256 of its events:",
            bullet=True,
        )
        yield Fixed(text=f"    {recording.sha256}")


def _results(whole: RepeatedComparison, style: Style) -> Iterator[Block]:
    rows = shown_rows(whole.rows)
    yield Words(text=whole.believable)
    if len(whole.comparisons) == 1:
        yield Fixed(text=comparison_table(rows, whole.comparisons[0].footer(), style=style))
    else:
        shown = RepeatedComparison(comparisons=whole.comparisons, rows=rows)
        yield Fixed(text=repeated_table(shown, style=style))
        yield Fixed(text=whole.comparisons[0].footer().to_text())
    yield from _left_out(whole.rows)


def _left_out(rows: pd.DataFrame) -> Iterator[Block]:
    zero = rows[(rows["base"] == 0) & (rows["patch"] == 0)]
    if len(zero):
        names = ", ".join(dict.fromkeys(zero["metric"]))
        yield Words(
            text=f"Zero on both sides, hence not in the table (in all or some zones): {names}."
        )
    unknown = rows[rows["base"].isna() & rows["patch"].isna()]
    if len(unknown):
        names = ", ".join(dict.fromkeys(unknown["metric"]))
        yield Words(
            text=f"Not modelled, hence NA: {names}. A literal replay repeats the recorded reclaim."
        )


def _charts(comparison: Comparison, utf8: bool) -> Iterator[Block]:
    for chart in predicted_charts(comparison, glyphs=UTF8 if utf8 else ASCII):
        yield Fixed(text=chart.text)
        yield Words(text=f"Not modelled here: {chart.left_out}.")


def _errors(validations: Sequence[Validation]) -> Iterator[Block]:
    for validation in validations:
        errors = validation.errors
        chosen = errors["metric"].isin(SHOWN_ERRORS) & ~errors["scope"].str.startswith("cpu=")
        yield Words(text=f"Under the policy that {validation.recording.name} was recorded with:")
        yield Fixed(text=error_table(errors[chosen & (errors["scope"] != "per time bin")]))


def _assumed(comparison: Comparison) -> Iterator[Block]:
    base = comparison.base
    yield Words(text=f"Rules: {base.rules_origin}.", bullet=True)
    inferred = [each.rule for each in base.rule_evidence if each.standing == "inferred"]
    if inferred:
        yield Words(
            text=f"Not read in that kernel's source, inferred: {', '.join(inferred)}.", bullet=True
        )
    assumed = ", ".join(f"{name} {value}" for name, value in asdict(base.assumptions).items())
    yield Words(text=f"Assumptions: {assumed}; seed {base.seed}.", bullet=True)
    for line in base.start_state:
        yield Words(text=f"Start: {line}.", bullet=True)


def _reproduce(
    whole: RepeatedComparison, recordings: Sequence[Recording], style: Style
) -> Iterator[Block]:
    first = whole.comparisons[0]
    names = dict.fromkeys(recording.name for recording in recordings)
    words = ["pagealloc", "post", *map(shlex.quote, names)]
    for side in ("base", "patch"):
        given = getattr(first, side).asked_policy.given()
        if given:
            settings = (f"{name}={_setting(value)}" for name, value in given.items())
            words += [f"--{side}", ",".join(settings)]
    seeds = {comparison.base.seed for comparison in whole.comparisons}
    words += [f"--seeds {len(seeds)}"] if len(seeds) > 1 else []
    words += [f"--style {style}"] if style != "signed" else []
    yield command(" ".join(words))
    version = first.footer().version
    yield Words(text=f"with pagealloc_model {version} and the recordings named above.")
    if first.base.assumptions != Assumptions():
        yield Fixed(text=paragraph(f"assumptions={first.base.assumptions}"))
