"""`python -m tests.golden`: results beside those that are committed; see --help."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.golden import expected_results
from tests.golden.parts import PARTS, alone, chosen_cases, module_of, outcomes

Found = dict[str, expected_results.Outcome]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen cases; returns 1 if one differs from what is expected."""
    options = _parser().parse_args(arguments)
    parts = list(PARTS) if options.part is None else options.part.split(",")
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        print(f"golden: no part {unknown[0]}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    chosen = {
        part: chosen_cases(part, options.only, full=options.full, quick=options.quick)
        for part in parts
    }
    if options.list:
        print("\n".join(f"{part}: {case}" for part in parts for case in chosen[part]))
        return 0
    begun = time.monotonic()
    differing = 0
    with alone():
        for part in parts:
            found = _found(part, chosen[part], options.processes)
            expected = expected_results.read(part)
            if options.update:
                every = set(chosen_cases(part, full=True))
                kept = {case: outcome for case, outcome in expected.items() if case in every}
                expected_results.write(part, kept | found)
                continue
            for case in chosen[part]:
                lines = list(expected_results.differences(expected.get(case), found[case]))
                differing += bool(lines)
                for line in lines:
                    print(line if line.startswith("    ") else f"{part}: {case}: {line}")
            if options.only is None and not options.quick:
                gone = sorted(set(expected) - set(chosen_cases(part, full=True)))
                differing += len(gone)
                for case in gone:
                    print(f"{part}: {case}: is expected and there is no such case")
    count = sum(map(len, chosen.values()))
    outcome = "written" if options.update else f"{differing} differ"
    print(f"golden: {count} cases, {outcome}, {time.monotonic() - begun:.0f} s")
    return 1 if differing else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.golden",
        description="Compare what the package gives with the results that are committed.",
    )
    parser.add_argument("--part", metavar="PART,...", help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--only", metavar="WORDS", help="cases whose name holds these words")
    parser.add_argument("--update", action="store_true", help="write what is found as expected")
    parser.add_argument("--list", action="store_true", help="print the cases, run nothing")
    parser.add_argument("--quick", action="store_true", help="what make test looks at")
    parser.add_argument(
        "--full", action="store_true", help="also recordings of PAGEALLOC_RECORDINGS"
    )
    parser.add_argument("-j", dest="processes", type=int, default=2, help="processes (default 2)")
    return parser


def _found(part: str, cases: Sequence[str], processes: int) -> Found:
    """What a part's cases give; cases of one recording are one process's, one after the other."""
    by_recording = hasattr(module_of(part), "BY_RECORDING")
    groups: dict[str, list[str]] = {}
    for case in cases:
        groups.setdefault(case.split(" ")[0] if by_recording else case, []).append(case)
    found: Found = {}
    # a worker is started anew, not forked: threads of numba and Arrow do not survive a fork
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=processes, mp_context=context) as pool:
        begun = [pool.submit(outcomes, part, group) for group in groups.values()]
        for done in as_completed(begun):
            found |= done.result()
            _say(f"{part}: {len(found)} of {len(cases)}")
    _say("")
    return found


def _say(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{line:60}", end="" if line else "\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
