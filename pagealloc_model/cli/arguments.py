"""Options that several commands share."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.policy.kernel_rules import BY_ANSWERS, KernelRules, preset_names
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.policy.policy_fields import BOOL, CHOICE, NUMBERS

if TYPE_CHECKING:
    from pagealloc_model.allocator.from_source.build import KernelBuild

BETWEEN_FIELDS = re.compile(r",|\s+(?=[a-z_.0-9]+=)")
"""What parts two fields of a policy; values of some fields have blanks between their numbers."""

Commands = Any
"""What argparse's add_subparsers returns; it has no public type."""


def add_command(
    commands: Commands, name: str, *, summary: str, example: str, more: str = ""
) -> argparse.ArgumentParser:
    """A command's parser, with an example at the end of its help."""
    epilog = "\n\n".join(part for part in (more, f"example:\n  {example}") if part)
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(parser=parser)
    return parser


def add_policy(parser: argparse.ArgumentParser, option: str, meaning: str, **more: Any) -> None:
    """An option that names a policy's fields; given several times, it names all of them."""
    parser.add_argument(option, metavar="FIELD=VALUE,...", action="append", help=meaning, **more)


def add_recording(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """The recording or recordings to read."""
    parser.add_argument(
        "path" if not several else "paths",
        metavar="PATH",
        nargs="+" if several else None,
        help="a recording: its directory, perf.data, perf script text, or a shipped name",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`, for scripts."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def add_rules(parser: argparse.ArgumentParser) -> None:
    """`--rules`, to replay under another kernel's rules."""
    parser.add_argument(
        "--rules",
        type=_rules,
        metavar="SERIES[,RULE=BOOL...]",
        help=f"rules of this kernel series ({', '.join(preset_names())}) instead of the recorded "
        "kernel's, single rules changed; or 'evidence': let what the recorded kernel did choose "
        "too, although a prediction has then seen part of the answer",
    )


def add_kernel_source(parser: argparse.ArgumentParser, meaning: str, *, needed: bool) -> None:
    """`--kernel-source`, the tree whose allocator is compiled, and `--patch`, changes to it."""
    parser.add_argument(
        "--kernel-source",
        metavar="DIR",
        type=Path,
        required=needed,
        help=f"kernel checkout, unpacked source package, or its tarball in /usr/src: {meaning}",
    )
    parser.add_argument(
        "--patch",
        metavar="FILE",
        type=Path,
        help="patch to that tree, which stays as it is on disk",
    )


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


def _rules(text: str) -> str:
    """`--rules`, checked before anything is read."""
    if text != BY_ANSWERS:
        try:
            KernelRules.named(text)
        except PolicyError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    return text


def policy_of(option: str, words: Sequence[str] | None) -> Policy:
    """The policy that an option's "field=value,..." name; as recorded where it was not given.

    Fields are parted by commas, or by blanks as in what is printed of a policy.

    Raises:
        UsageError: the option names no setting, or one twice.
        PolicyError: an unknown field or a bad value.
    """
    if words is None:
        return Policy()
    settings = [each for word in words for each in BETWEEN_FIELDS.split(word) if each.strip()]
    names = [each.partition("=")[0].strip() for each in settings]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"{option}: {twice} is given twice")
    if not settings:
        raise UsageError(f"{option}: names no setting; write {option} FIELD=VALUE,...")
    return Policy.parse(settings)


def policy_fields_help() -> str:
    """All policy fields with range and meaning, for the end of a help text."""
    lines = ["policy fields (none = as recorded):"]
    for name, each in policy_settings().items():
        about = each.metadata
        words = f"{about['meaning']} [{_range(about)}; {about['source']}]"
        lines.append(f"  {name}")
        lines += textwrap.wrap(words, 76, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def _range(about: Mapping[str, Any]) -> str:
    """What values a field takes."""
    if about["kind"] == CHOICE:
        return ", ".join(about["choices"])
    low, high = (0, 1) if about["kind"] == BOOL else (about["minimum"], about["maximum"])
    several = "several of " if about["kind"] == NUMBERS else ""
    return f"{several}{low} to {high}" + (f" {about['unit']}" if about["unit"] else "")
