"""Pages of reference made from the code: policy fields, rules, assumptions, the command line."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from pagealloc_model.cli.main import build_parser
from pagealloc_model.policy.assumptions import Assumptions, ElasticAssumptions
from pagealloc_model.policy.kernel_rules import PRESETS, KernelRules
from pagealloc_model.policy.policy import policy_settings
from pagealloc_model.policy.policy_fields import BOOL, CHOICE

HELP_COLUMNS = 88
POLICY_INTRODUCTION = """# Policy fields

What the kernel could do differently: the fields of `pm.Policy`, and with `ownership.` before their
name those of `policy.OwnershipOptions`. A field of `Policy` that is not given means "as recorded".
Its default is what mainline does where a recording does not say; "the kernel's own" is computed
from the machine or differs by version. Write `pm.Policy(pcp_batch=127)`, or `--set pcp_batch=127`.
"""
RULES_INTRODUCTION = """# Kernel rules

What differs between kernel versions: the fields of `pm.KernelRules`, and their value in each
preset. † marks a value that is inferred, not read in a source. Write `--rules
6.18,free_batched=true` to change one.
"""
ASSUMPTIONS_INTRODUCTION = """# Assumptions

What *we* suppose where a recording is silent. Assumptions are printed with every result, and
replays under different ones are not compared.
"""
HELP_INTRODUCTION = """# The command line, option by option

What `pagealloc COMMAND --help` prints.
"""


def policy_page() -> str:
    """Every field of `pm.Policy` and of `OwnershipOptions`."""
    lines = [POLICY_INTRODUCTION]
    groups: dict[str, list[Sequence[str]]] = {}
    for name, each in policy_settings().items():
        about = each.metadata
        row = (
            f"`{name}`",
            f"`{about['kernel_name']}`",
            about["unit"],
            _range(about),
            _value(about["default"], about["kind"]),
            about["meaning"],
            about["source"],
        )
        groups.setdefault(about["group"], []).append(row)
    heading = ("name", "kernel name", "unit", "range", "default", "meaning", "source")
    for group, rows in groups.items():
        lines += [f"## {group[0].upper()}{group[1:]}", "", *_table(heading, rows), ""]
    return _page(lines)


def rules_page() -> str:
    """Every field of `pm.KernelRules`, with its value in each preset."""
    heading = ("name", *PRESETS, "meaning", "source")
    rows = []
    for each in fields(KernelRules):
        if each.metadata:
            values = [
                _value(getattr(rules, each.name), BOOL) + " †" * (each.name in rules.inferred)
                for rules in PRESETS.values()
            ]
            meaning, source = each.metadata["meaning"], each.metadata["source"]
            rows.append((f"`{each.name}`", *values, meaning, source))
    return _page([RULES_INTRODUCTION, *_table(heading, rows)])


def assumptions_page() -> str:
    """Every field of `pm.Assumptions` and of `ElasticAssumptions`."""
    lines = [ASSUMPTIONS_INTRODUCTION]
    for kind in (Assumptions, ElasticAssumptions):
        meanings = _documented(kind)
        rows = []
        for each in fields(kind):
            default = each.type + "()" if each.default is MISSING else each.default
            rows.append((f"`{each.name}`", _value(default, ""), meanings[each.name]))
        lines += [f"## {kind.__name__}", "", *_table(("name", "default", "meaning"), rows), ""]
    return _page(lines)


def command_line_page() -> str:
    """The help of every command."""
    parser = build_parser()
    lines = [HELP_INTRODUCTION, *_help(parser)]
    for name, command in _commands(parser).items():
        lines += ["", f"## {name}", "", *_help(command)]
    return _page(lines)


def _help(parser: argparse.ArgumentParser) -> list[str]:
    kind = parser.formatter_class

    class Wide(kind):  # type: ignore[misc, valid-type]
        """The parser's own layout, as wide whatever terminal there is."""

        def __init__(self, prog: str) -> None:
            super().__init__(prog, width=HELP_COLUMNS)

    parser.formatter_class = Wide
    if "color" in vars(parser):
        parser.color = False
    return ["```text", parser.format_help().rstrip(), "```"]


def _commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return action.choices
    raise LookupError("the parser has no commands")


def _documented(kind: type) -> dict[str, str]:
    """Meaning of each field by name, from the class's docstring."""
    _, _, listed = inspect.getdoc(kind).partition("Attributes:\n")  # type: ignore[union-attr]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", listed, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _range(about: Mapping[str, Any]) -> str:
    if about["kind"] == CHOICE:
        return ", ".join(f"`{each}`" for each in about["choices"])
    if about["kind"] == BOOL:
        return "`false`, `true`"
    return f"{about['minimum']:,} to {about['maximum']:,}"


def _value(value: object, kind: str) -> str:
    if value is None:
        return "the kernel's own"
    if isinstance(value, bool) or kind == BOOL:
        return f"`{str(bool(value)).lower()}`"
    return f"{value:,}" if isinstance(value, int) else f"`{value}`"


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heading)} |"
    yield f"|{'---|' * len(heading)}"
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)
        yield f"| {' | '.join(cells)} |"


def _page(lines: Iterable[str]) -> str:
    return "\n".join([*lines, ""])
