"""Options that several commands share, and what they print and write."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pagealloc_model.base.errors import PolicyError, UsageError
from pagealloc_model.base.text import paragraph
from pagealloc_model.policy.kernel_rules import BY_ANSWERS, KernelRules, preset_names
from pagealloc_model.policy.policy import Policy, policy_settings
from pagealloc_model.policy.policy_fields import values_of

if TYPE_CHECKING:
    from pagealloc_model.kernel_source.build import KernelBuild
    from pagealloc_model.policy.policy import Assumptions
    from pagealloc_model.predicted.replay import ReclaimChoice
    from pagealloc_model.recording.recording import Recording


BETWEEN_FIELDS = re.compile(r",|\s+(?=[a-z_.0-9]+=)")
"""Separator of two fields of a policy; values of some fields have blanks between their numbers."""
Option = tuple[tuple[str, ...], dict[str, Any]]
"""Words and keywords, as argparse's add_argument takes them."""


@dataclass(frozen=True)
class Command:
    """One command of `pagealloc`; `run` returns the exit code, the others are of commands.toml."""

    name: str
    run: Callable[[argparse.Namespace], int]
    summary: str
    example: str
    options: str
    more: str = ""


def command_table(*modules: ModuleType) -> tuple[Command, ...]:
    """The commands of commands.toml; `run_NAME` of one of the modules carries out each."""
    text = (Path(__file__).parent / "commands.toml").read_text(encoding="utf-8")
    values = {"{policy_fields}": policy_fields_help(), "{series}": ", ".join(preset_names())}
    functions = {name: run for module in modules for name, run in vars(module).items()}
    commands = []
    for name, words in tomllib.loads(text).items():
        for mark, value in values.items():
            words = {key: word.replace(mark, value) for key, word in words.items()}
        commands.append(Command(name=name, run=functions[f"run_{name}"], **words))
    return tuple(commands)


def _whole_number(refusal: str, most: int = sys.maxsize) -> Callable[[str], int]:
    """A type of options that takes 1 to `most`."""

    def parse(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} {refusal}")
        return int(text)

    return parse


def _rules(text: str) -> KernelRules:
    try:
        return KernelRules.named(text)
    except PolicyError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _rules_or_evidence(text: str) -> str:
    if text != BY_ANSWERS:
        _rules(text)
    return text


TYPES: dict[str, Callable[[str], object]] = {
    "int": int,
    "float": float,
    "path": Path,
    "count": _whole_number("is no count; give 1 or more"),
    "operations": _whole_number("is not a number of operations"),
    # checked before anything is read: a server waits for ever at other ports
    "port": _whole_number("is no port; give 1 to 65535", 65535),
    "rules": _rules,
    "rules_or_evidence": _rules_or_evidence,
}
FURTHER: dict[str, dict[str, Any]] = {
    "required": {"required": True},
    "repeated": {"action": "append", "default": []},
    "policy": {"metavar": "FIELD=VALUE,...", "action": "append"},
    "perhaps": {"nargs": "?"},
    "many": {"nargs": "*"},
    "some": {"nargs": "+"},
    "none": {"default": []},
    "off": {"action": "store_false"},
    "on_or_off": {"action": argparse.BooleanOptionalAction},
    "json": {"action": "store_const", "const": "json"},
}
"""Words that say more of an option."""
_RECORDING = "a recording: its directory, perf.data, perf script text, or a shipped name"
SHARED = {
    "RECORDING": f"path PATH: {_RECORDING}",
    "RECORDINGS": f"paths PATH some: {_RECORDING}",
    "JSON": "--json: print JSON instead of text",
    "RECLAIM": '--reclaim literal|elastic|closed = "": literal: repeat what the recorded kernel '
    "reclaimed and compacted; elastic: let the model decide; closed: as elastic, and a task that "
    "stalls asks for nothing meanwhile. Default: elastic if a policy acts through reclaim or the "
    "recorded kernel reclaimed, else literal",
    "RULES": "--rules SERIES[,RULE=BOOL...] rules_or_evidence: rules of this kernel series "
    f"({', '.join(preset_names())}) instead of the recorded kernel's, with single rules changed; "
    "or 'evidence': also use what the recorded events show, so that a prediction has seen part of "
    "the answer",
    "TREE_PATCH": "--patch FILE path: patch to that tree, which stays as it is on disk",
}
"""Options of several commands, by the name that stands for them."""


def options_of(command: Command) -> Iterator[Option]:
    """The options of a command, from lines of text: words, what they take, a colon, and their help.

    After the words come a NAME of the value in capitals; its type, of `TYPES`; the values that are
    allowed, as one|two; `= default`; `as attribute`; and words of `FURTHER`. An option that takes
    no value is a flag. Lines that are indented go on with the help. A name of `SHARED` stands for
    that option.
    """
    for entry in re.split(r"\n(?=\S)", textwrap.dedent(command.options).strip()):
        head, _, meaning = SHARED.get(entry, entry).partition(":")
        tokens = re.split(r"[ \n]+", head)
        count = max(sum(token.startswith("-") for token in tokens), 1)
        words, rest = tuple(tokens[:count]), iter(tokens[count:])
        keywords: dict[str, Any] = {"help": " ".join(meaning.split())} if meaning.strip() else {}
        for token in rest:
            if token in TYPES:
                keywords["type"] = TYPES[token]
            elif token in FURTHER:
                keywords |= FURTHER[token]
            elif token == "=":
                default = next(rest).strip('"')
                keywords["default"] = (
                    int(default) if default.isdecimal() else keywords.get("type", str)(default)
                )
            elif token == "as":
                keywords["dest"] = next(rest)
            elif "|" in token:
                keywords["choices"] = tuple(filter(None, token.split("|")))
            else:
                keywords["metavar"] = token.replace("\u00a0", " ")
        takes = {"metavar", "choices", "action", "type"} & set(keywords)
        if words[0].startswith("-") and not takes:
            keywords["action"] = "store_true"
        yield words, keywords


def kernel_build(options: argparse.Namespace, policy: Policy) -> KernelBuild | None:
    """The kernel build that options ask for, None if they name no tree."""
    from pagealloc_model.kernel_source.build import KernelBuild

    if options.kernel_source is None:
        if options.patch is not None:
            raise UsageError("--patch: needs --kernel-source, the tree that it changes")
        return None
    return KernelBuild(options.kernel_source, policy, options.patch)


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
    recording: Recording, *policies: Policy, asked: str = ""
) -> tuple[ReclaimChoice, Assumptions]:
    """The way reclaim is replayed under policies, and assumptions with it; "" takes the usual."""
    from pagealloc_model.policy.policy import Assumptions
    from pagealloc_model.predicted.replay import choose_reclaim

    reclaim = choose_reclaim(recording, *policies, asked=asked)
    if reclaim.mode == "closed":
        from pagealloc_model.measured.costs import at_recorded_cost
        from pagealloc_model.recording.recorded_machine import start_snapshots

        start = start_snapshots(recording)[1]
        return reclaim, at_recorded_cost(recording.trace, start, time="closed")
    return reclaim, Assumptions(reclaim=reclaim.mode)


def assumed_for_all(
    places: Sequence[str], *policies: Policy, asked: str = ""
) -> tuple[str, Assumptions]:
    """Words to print and assumptions for recordings side by side: elastic for all if for one.

    What lies at an fsspec address is opened by workers alone, so that it has no say.
    """
    from pagealloc_model.policy.policy import Assumptions
    from pagealloc_model.sweeps.records import is_address

    each = [place for place in dict.fromkeys(places) if not is_address(place)]
    if asked == "closed" and not len({*places}) == len(each) == 1:
        raise UsageError("--reclaim closed takes the costs of one recording here: give one")
    choices = [assumed(opened(place), *policies, asked=asked) for place in each]
    choices.sort(key=lambda choice: choice[0].mode == "literal")
    for reclaim, assumptions in choices[:1]:
        return f"{paragraph(str(reclaim))}\n\n", assumptions
    return "", Assumptions(reclaim=asked or "literal")


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
