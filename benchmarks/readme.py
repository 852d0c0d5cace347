"""Write README's figures: errors of each recording, choices judged alone, locks, speeds.

Usage: python benchmarks/readme.py     (make readme)

Full recordings are taken from the directory that PAGEALLOC_RECORDINGS names; without it, only the
part on the shipped recordings is written anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import locks
import pandas as pd
from reading import reading
from speed import replaying

import pagealloc_model as pm

README = Path(__file__).resolve().parent.parent / "README.md"
SHIPPED = ("kbuild", "xfree", "highatomic_stock", "highatomic_gate3")
FULL = (
    "kbuild",
    "xfree",
    "exit",
    "highatomic_stock",
    "highatomic_gate3",
    "unbatched72",
    "batched72",
    "defrag72",
)
SHOWN = {
    "free_pages": "free pages",
    "order_distribution_tv": "distribution over orders",
    "pcp_count": "pages on a CPU's lists",
    "refill_pages": "pages refilled",
    "refill_transactions": "refills",
    "drain_pages": "pages drained",
    "drain_transactions": "drains",
    "highatomic_blocks": "highatomic blocks at the end",
    "contended_acquisitions": "contended acquisitions",
}


def replace_between(text: str, name: str, content: str) -> str:
    """Put content between the two markers of a name."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{content}\n{end}{tail}"


def error_lines(paths: list[str]) -> Iterator[str]:
    """A markdown table of the main errors of recordings."""
    yield "| recording | what | where | measured | predicted | error | null model's error |"
    yield "|---|---|---|--:|--:|--:|--:|"
    for path in paths:
        validation = pm.validate(pm.open(path))
        errors = validation.errors
        chosen = errors["metric"].isin(SHOWN) & ~errors["scope"].str.startswith("cpu=")
        for row in errors[chosen & (errors["scope"] != "per time bin")].itertuples():
            yield (
                f"| {validation.bundle.name} | {SHOWN[row.metric]} | {row.scope} "
                f"| {_number(row.measured)} | {_number(row.predicted)} "
                f"| {_error(row.error, row.unit)} | {_error(row.null_error, row.unit)} |"
            )


def _number(value: float) -> str:
    return "NA" if pd.isna(value) else f"{value:,.4g}" if abs(value) < 10 else f"{value:,.0f}"


def _error(value: float, unit: str) -> str:
    if pd.isna(value):
        return "NA"
    if unit == "total variation":
        return f"{value:.4f}"
    return f"{100 * value:+,.1f}%"


def choice_lines(paths: list[str]) -> Iterator[str]:
    """A markdown table of the choices judged alone: one row per recording and kind of choice."""
    yield "| recording | choice | judged | as the kernel | null model | unjudged |"
    yield "|---|---|--:|--:|--:|--:|"
    for path in paths:
        bundle = pm.open(path)
        choices = pm.judge_placement(bundle).choices
        for row in choices[choices["scope"] == "all"].itertuples():
            if row.judged or row.unjudged:
                yield (
                    f"| {bundle.name} | {row.choice} | {row.judged:,} | {_share(row.share)} "
                    f"| {_share(row.null_share)} | {row.unjudged:,} |"
                )


def _share(value: float) -> str:
    """In percent, rounded down so that only all is 100%."""
    return "NA" if pd.isna(value) else f"{int(value * 1e4) / 100:.2f}%"


def speed_lines(path: str) -> Iterator[str]:
    """A markdown table of speeds."""
    bundle = pm.open(path)
    yield f"| on `{bundle.name}`, {len(bundle.trace):,} events | value | unit | beside |"
    yield "|---|--:|---|---|"
    for row in replaying(bundle):
        beside = f"{row['ratio']:.1f} x {row['peer']}" if row["ratio"] else ""
        value = f"{row['value']:,.2f}" if row["unit"] == "s" else f"{row['value']:,.0f}"
        yield f"| {row['name']} | {value} | {row['unit']} | {beside} |"


def reading_lines(path: str) -> Iterator[str]:
    """A markdown table of how fast an event file is read, beside perf's tools."""
    bundle = pm.open(path)
    yield f"| on `{bundle.name}` | events/s | beside | events/s | ratio |"
    yield "|---|--:|---|--:|--:|"
    for row in reading(bundle.event_file):
        beside = "|  |  |  |"
        if row["ratio"]:
            beside = f"| {row['peer']} | {row['peer_value']:,.0f} | {row['ratio']:.1f} |"
        yield f"| {row['name']} | {row['value']:,.0f} {beside}"


def lock_lines(directory: Path) -> Iterator[str]:
    """Markdown tables of lock traffic: by site, across policies, from fewer CPUs, made up."""
    of = {name: str(directory / name) for name in FULL}
    yield from _table_lines(locks.sites((of["kbuild"], of["xfree"])))
    yield ""
    pairs = locks.pairs(of["unbatched72"], of["batched72"])
    yield from _table_lines(pairs.set_index("from").T.reset_index(names="predicted from"))
    yield ""
    scaled = locks.scale((of["batched72"], of["unbatched72"]))
    shown = scaled[scaled["site"].isin(("refill", "drain"))]
    yield from _table_lines(shown.drop(columns="all_streams"))
    yield ""
    yield from _table_lines(locks.avalanche().drop(columns="CPU seconds"))


def _table_lines(frame: pd.DataFrame) -> Iterator[str]:
    """A data frame as markdown; errors in percent."""
    numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in frame]
    yield f"| {' | '.join(map(str, frame))} |"
    yield f"|{'|'.join('--:' if each else '---' for each in numeric)}|"
    for row in frame.itertuples(index=False):
        cells = [
            _error(value, "") if name in ("error", "added") else _cell(value)
            for name, value in zip(frame, row, strict=True)
        ]
        yield f"| {' | '.join(cells)} |"


def _cell(value: object) -> str:
    return value if isinstance(value, str) else _number(float(value))  # type: ignore[arg-type]


def main() -> None:
    """Rewrite README in place."""
    text = README.read_text()
    full = os.environ.get("PAGEALLOC_RECORDINGS")
    text = replace_between(text, "errors", "\n".join(error_lines(list(SHIPPED))))
    if full:
        paths = [str(Path(full) / name) for name in FULL if (Path(full) / name).exists()]
        text = replace_between(text, "errors-full", "\n".join(error_lines(paths)))
        text = replace_between(text, "choices", "\n".join(choice_lines(paths)))
        text = replace_between(text, "locks", "\n".join(lock_lines(Path(full))))
        text = replace_between(text, "reading", "\n".join(reading_lines(paths[0])))
        text = replace_between(text, "speed", "\n".join(speed_lines(paths[0])))
    README.write_text(text)


if __name__ == "__main__":
    main()
