"""Options that several commands share, and what they print and write."""

from __future__ import annotations

import argparse
import json
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.base.files import new_directory as new_directory
from pagealloc_model.policy.kernel_rules import BY_ANSWERS, KernelRules, preset_names
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.policy.policy_fields import values_of

if TYPE_CHECKING:
    import pandas as pd

    from pagealloc_model.allocator.from_source.build import KernelBuild


BETWEEN_FIELDS = re.compile(r",|\s+(?=[a-z_.0-9]+=)")
"""What parts two fields of a policy; values of some fields have blanks between their numbers."""

Option = tuple[tuple[str, ...], dict[str, Any]]
"""What argparse's add_argument takes: words and keywords."""


@dataclass(frozen=True)
class Command:
    """One command of `pagealloc`.

    Attributes:
        name: the word that calls it.
        run: carries it out and returns the exit code.
        summary: one phrase of what it does.
        example: a call, for the end of its help.
        options: what it takes.
        more: what else its help says.
    """

    name: str
    run: Callable[[argparse.Namespace], int]
    summary: str
    example: str
    options: tuple[Option, ...] = ()
    more: str = ""


def option(*words: str, **more: Any) -> Option:
    """An option, as add_argument takes it."""
    return words, more


def policy_option(word: str, meaning: str, **more: Any) -> Option:
    """An option that names a policy's fields; given several times, it names all of them."""
    return option(word, metavar="FIELD=VALUE,...", action="append", help=meaning, **more)


_RECORDING_HELP = "a recording: its directory, perf.data, perf script text, or a shipped name"
RECORDING = option("path", metavar="PATH", help=_RECORDING_HELP)
RECORDINGS = option("paths", metavar="PATH", nargs="+", help=_RECORDING_HELP)
JSON = option("--json", action="store_true", help="print JSON instead of text")


def rules_argument(text: str) -> str:
    """`--rules`, checked when options are read."""
    if text != BY_ANSWERS:
        try:
            KernelRules.named(text)
        except PolicyError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return text


RULES = option(
    "--rules",
    type=rules_argument,
    metavar="SERIES[,RULE=BOOL...]",
    help=f"rules of this kernel series ({', '.join(preset_names())}) instead of the recorded "
    "kernel's, single rules changed; or 'evidence': let what the recorded kernel did choose "
    "too, although a prediction has then seen part of the answer",
)


RECLAIM = option(
    "--reclaim",
    choices=("literal", "elastic"),
    default="",
    help="elastic: the model decides what is reclaimed and compacted; literal: what the recorded "
    "kernel reclaimed is repeated. Default: elastic where a policy acts through reclaim or the "
    "recorded kernel reclaimed, else literal",
)


def kernel_source_options(meaning: str, *, needed: bool) -> tuple[Option, Option]:
    """`--kernel-source`, the tree whose allocator is compiled, and `--patch`, changes to it."""
    tree = option(
        "--kernel-source",
        metavar="DIR",
        type=Path,
        required=needed,
        help=f"kernel checkout, unpacked source package, or its tarball in /usr/src: {meaning}",
    )
    patch = option(
        "--patch",
        metavar="FILE",
        type=Path,
        help="patch to that tree, which stays as it is on disk",
    )
    return tree, patch


def kernel_build(options: argparse.Namespace, policy: Policy) -> KernelBuild | None:
    """The kernel build that options ask for, None if they name no tree.

    Raises:
        UsageError: no such tree, or a patch without a tree or that does not apply to it.
    """
    from pagealloc_model.allocator.from_source.build import KernelBuild

    if options.kernel_source is None:
        if options.patch is not None:
            raise UsageError("--patch: needs --kernel-source, the tree that it changes")
        return None
    return KernelBuild(options.kernel_source, policy, options.patch)


def at_least_one(text: str) -> int:
    """The value of an option that counts things."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no count; give 1 or more")
    return int(text)


def policy_of(option: str, words: Sequence[str] | None) -> Policy:
    """The policy that an option's "field=value,..." name; as recorded where it was not given.

    Fields are parted by commas, or by blanks as in what is printed of a policy.

    Raises:
        UsageError: the option names no setting.
        PolicyError: an unknown field, one given twice, or a bad value.
    """
    if words is None:
        return Policy()
    settings = [each for word in words for each in BETWEEN_FIELDS.split(word) if each.strip()]
    if not settings:
        raise UsageError(f"{option}: names no setting; write {option} FIELD=VALUE,...")
    return Policy.parse(settings)


def policy_fields_help() -> str:
    """All policy fields with range and meaning, for the end of a help text."""
    lines = ["policy fields (none = as recorded):"]
    for name, each in policy_settings().items():
        about = each.metadata
        words = f"{about['meaning']} [{values_of(about)}; {about['source']}]"
        lines.append(f"  {name}")
        lines += textwrap.wrap(words, 76, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def json_text(value: object) -> str:
    """JSON with NA and NaN as null, and NumPy numbers as numbers."""
    return json.dumps(_plain(value), indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    import pandas as pd

    return None if value is pd.NA or value is pd.NaT else str(value)


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table as JSON-ready rows."""
    return [_plain(row) for row in table.to_dict("records")]


def write_directory(directory: Path, files: Mapping[str, str]) -> None:
    """Write files into a new directory, which appears under its name once all are written.

    Args:
        directory: must not exist, or be empty.
        files: text by file name.

    Raises:
        UsageError: the directory has files already, or cannot be made.
    """
    with new_directory(directory) as partial:
        for name, text in files.items():
            (partial / name).write_text(text, encoding="utf-8")
