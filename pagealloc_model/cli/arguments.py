"""Options that several commands share, and what they print and write."""

from __future__ import annotations

import argparse
import inspect
import json
import math
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.policy.assumptions import AUTO, CHOICES, Assumptions
from pagealloc_model.policy.kernel_rules import BY_ANSWERS, KernelRules, preset_names
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.policy.policy_fields import values_of

if TYPE_CHECKING:
    from pagealloc_model.kernel_source.build import KernelBuild
    from pagealloc_model.predicted.reclaim_mode import ReclaimChoice
    from pagealloc_model.recording.recording import Recording


BETWEEN_FIELDS = re.compile(r",|\s+(?=[a-z_.0-9]+=)")
"""Separator of two fields of a policy; values of some fields have blanks between their numbers."""
Commands = argparse._SubParsersAction
"""What `ArgumentParser.add_subparsers` returns; its parsers are the commands."""
RECORDING = "a recording: its directory, perf.data, perf script text, or a shipped name"


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace], int],
    summary: str,
    *,
    example: str,
    more: str = "",
    policy_fields: bool = False,
) -> argparse.ArgumentParser:
    """Add a command without options.

    Args:
        commands: where it is added.
        name: as it is called.
        run: carries it out and returns the exit code.
        summary: its line in `pagealloc --help`, and the first line of its own help.
        example: a command line, at the end of its help.
        more: what else its help says.
        policy_fields: whether its help lists all policy fields.
    """
    fields = policy_fields_help() if policy_fields else ""
    parts = (inspect.cleandoc(more), fields, f"example:\n  {example}")
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog="\n\n".join(filter(None, parts)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(parser=parser, run=run)
    return parser


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Add the recording that a command reads, `path`."""
    parser.add_argument("path", metavar="PATH", help=RECORDING)


def add_recordings(parser: argparse.ArgumentParser) -> None:
    """Add the recordings that a command reads, `paths`."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help=RECORDING)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_policy(
    parser: argparse.ArgumentParser, option: str, meaning: str, *, required: bool = False
) -> argparse.Action:
    """Add an option that `policy_of` reads."""
    return parser.add_argument(
        option, action="append", metavar="FIELD=VALUE,...", required=required, help=meaning
    )


class _Refusal(argparse.Action):
    """Refuses its option with `const`."""

    def __call__(
        self, parser: argparse.ArgumentParser, _: object, values: object, option: str | None = None
    ) -> None:
        parser.error(f"{option}: {self.const}")


def refuse(parser: argparse.ArgumentParser, option: str, said: str) -> None:
    """Refuse an option that the command does not have, in a line that names those it has."""
    parser.add_argument(option, action=_Refusal, nargs="*", const=said, help=argparse.SUPPRESS)


def add_reclaim(parser: argparse.ArgumentParser) -> None:
    """Add --reclaim, one of `policy.assumptions`."""
    parser.add_argument(
        "--reclaim",
        choices=CHOICES["reclaim"],
        default=AUTO,
        help="literal: repeat what the recorded kernel reclaimed and compacted; elastic: let the "
        "model decide; auto: elastic if a policy acts through reclaim or the recorded kernel "
        "reclaimed, else literal (default: auto)",
    )


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add --rules, None where it is not given."""
    parser.add_argument(
        "--rules",
        type=kernel_rules_or_evidence,
        metavar="SERIES[,RULE=BOOL...]",
        help=f"rules of this kernel series ({', '.join(preset_names())}) instead of the recorded "
        "kernel's, with single rules changed; or 'evidence': also use what the recorded events "
        "show, so that a prediction has seen part of the answer",
    )


def add_tree_patch(parser: argparse.ArgumentParser) -> None:
    """Add --tree-patch, beside --kernel-source; --patch is a policy's, in other commands."""
    parser.add_argument(
        "--tree-patch",
        type=Path,
        metavar="FILE",
        help="patch to that tree, which stays as it is on disk",
    )
    refuse(
        parser,
        "--patch",
        "for FIELD=VALUE use replay --set or compare --patch, for a patch to the tree --tree-patch "
        "FILE",
    )


def whole_number(refusal: str, most: int = sys.maxsize) -> Callable[[str], int]:
    """A type of options that takes 1 to `most`, and says `refusal` of another."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} {refusal}")
        return int(text)

    return parse


count = whole_number("is no count; give 1 or more")


def kernel_rules(text: str) -> KernelRules:
    """The value of an option that names rules."""
    try:
        return KernelRules.named(text)
    except PolicyError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def kernel_rules_or_evidence(text: str) -> str:
    """The same of one that also takes 'evidence'; the text is only checked."""
    if text != BY_ANSWERS:
        kernel_rules(text)
    return text


def kernel_build(options: argparse.Namespace, policy: Policy) -> KernelBuild | None:
    """The kernel build that options ask for, None if they name no tree."""
    from pagealloc_model.kernel_source.build import KernelBuild

    if options.kernel_source is None:
        if options.tree_patch is not None:
            raise UsageError("--tree-patch: needs --kernel-source, the tree that it changes")
        return None
    return KernelBuild(options.kernel_source, policy, options.tree_patch)


def policy_of(option: str, words: Sequence[str] | None) -> Policy:
    """The policy that an option's "field=value,..." name; as recorded where it was not given.

    Fields are parted by commas, or by blanks as in what is printed of a policy.
    """
    if words is None:
        return Policy()
    settings = [part for word in words for part in BETWEEN_FIELDS.split(word) if part.strip()]
    if not settings:
        raise UsageError(f"{option}: names no setting; write {option} FIELD=VALUE,...")
    return Policy.parse(settings)


@cache
def policy_fields_help() -> str:
    """All policy fields with range and meaning, for the end of a help text."""
    lines = ["policy fields (none = as recorded):"]
    for name, field in policy_settings().items():
        about = field.metadata
        words = f"{about['meaning']} [{values_of(about)}; {about['source']}]"
        lines.append(f"  {name}")
        lines += textwrap.wrap(words, 76, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def opened(path: str) -> Recording:
    """The recording that an option names."""
    from pagealloc_model.recording.recording import open_recording

    return open_recording(path)


def assumed(
    recording: Recording, *policies: Policy, asked: str
) -> tuple[ReclaimChoice, Assumptions]:
    """The mode of reclaim that replays under several policies share, and assumptions with it."""
    from pagealloc_model.predicted.reclaim_mode import choose_reclaim

    reclaim = choose_reclaim(recording, *policies, asked=Assumptions(reclaim=asked))
    return reclaim, reclaim.assumptions


def counts_text(divergence: Mapping[str, int]) -> str:
    """The counts that are not 0, by name."""
    return ", ".join(f"{name} {count:,}" for name, count in divergence.items() if count)


def json_text(value: object) -> str:
    """JSON with NA and NaN as null, NumPy numbers as numbers, and tables as lists of rows."""
    return json.dumps(_plain(value), indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if hasattr(value, "itertuples"):
        value = value.to_dict("records")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    import pandas as pd

    return None if value is pd.NA or value is pd.NaT else str(value)
