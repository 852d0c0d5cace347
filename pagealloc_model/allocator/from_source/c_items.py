"""C source cut into top-level items: macros, types, variables, functions, with what they name.

No preprocessor runs here: an item keeps the conditions it stands under, and the compiler chooses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["macro", "type", "variable", "function"]

_OPAQUE = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
_LINE = re.compile(r"(?:\\\n|[^\n])*")
_STRUCTURE = re.compile(r"[{}()\[\];]|\n[ \t]*#")
_DIRECTIVE = re.compile(r"\s*#\s*(\w+)\s*(.*)", re.DOTALL)
_WORD = re.compile(r"\b(struct|union|enum)\s+(\w+)|\b([A-Za-z_]\w*)\b(\s*\()?")
_DEFINED = re.compile(r"\bdefined\s*\(?\s*\w+\s*\)?")
_TAG_DEFINITION = re.compile(r"\b(struct|union|enum)\s+(?:__\w+\s+)*(\w+)\s*\{")
_PARAMETER_NAME = re.compile(r"(\w+)\s*(?:\[[^]]*\])?\s*$")
_ATTRIBUTES = {"__attribute__", "__aligned", "__printf", "__must_hold", "__acquires", "__releases"}
_KEYWORDS = {"if", "while", "for", "switch", "return", "sizeof", "typeof"}


@dataclass(frozen=True, kw_only=True)
class Item:
    """One top-level definition.

    Attributes:
        path: file it is in, as its tree names it.
        line: where it begins.
        kind: what it is.
        names: what it defines: identifiers, and tags as "struct zone".
        conditions: preprocessor conditions it stands under, outermost first.
        text: as in the file, comments blanked.
        words: identifiers and tags it and its conditions use; "name(" is a call.
        parameters: a function's parameter names, in order.
        is_called: it is used as "name(": a function, or a macro with parameters.
    """

    path: str
    line: int
    kind: Kind
    names: tuple[str, ...]
    conditions: tuple[str, ...]
    text: str
    words: frozenset[str]
    parameters: tuple[str, ...] = ()
    is_called: bool = False

    @property
    def end_line(self) -> int:
        """Its last line."""
        return self.line + self.text.count("\n")

    @property
    def prototype(self) -> str:
        """A function's declaration."""
        return self.text[: without_comments(self.text).index("{")].rstrip() + ";"


def without_comments(text: str, *, literals: bool = False) -> str:
    """The text with comments blanked, and what is inside literals unless they are wanted.

    Everything else keeps its place.
    """

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found[0] not in "\"'":
            return re.sub(r"[^\n]", " ", found)
        return found if literals else found[0] + " " * (len(found) - 2) + found[0]

    return _OPAQUE.sub(blank, text)


def top_level_items(text: str, path: str) -> Iterator[Item]:
    """All definitions of a file, in its order; includes and prototypes are left out."""
    plain = without_comments(text)
    text = without_comments(text, literals=True)
    conditions: list[list[str]] = []
    position = 0
    while True:
        match = re.compile(r"\S").search(plain, position)
        if match is None:
            return
        start = match.start()
        if plain[start] == "#":
            end = _LINE.match(plain, start).end()  # type: ignore[union-attr]
            kind, rest = _DIRECTIVE.match(plain[start:end]).groups()  # type: ignore[union-attr]
            if kind == "define":
                yield _macro(text, plain, path, start, end, conditions)
            else:
                _follow(conditions, kind, " ".join(rest.replace("\\\n", " ").split()))
        else:
            end = _end_of_item(plain, start)
            yield from _declaration(text, plain, path, start, end, conditions)
        position = end


def _follow(conditions: list[list[str]], directive: str, condition: str) -> None:
    """Keep the stack of conditions; an entry is its branches so far, all but the last refused."""
    if directive == "ifdef":
        conditions.append([f"defined({condition})"])
    elif directive == "ifndef":
        conditions.append([f"!defined({condition})"])
    elif directive == "if":
        conditions.append([condition])
    elif directive == "elif" and conditions:
        conditions[-1].append(condition)
    elif directive == "else" and conditions:
        conditions[-1].append("1")
    elif directive == "endif" and conditions:
        conditions.pop()


def _spelled(conditions: list[list[str]]) -> tuple[str, ...]:
    return tuple(
        " && ".join([*(f"!({each})" for each in branches[:-1]), f"({branches[-1]})"])
        for branches in conditions
    )


def _end_of_item(plain: str, start: int) -> int:
    """Behind the `;` or the function body that ends an item."""
    depth = 0
    position = start
    is_function = False
    while match := _STRUCTURE.search(plain, position):
        char, position = match[0][-1], match.end()
        if char == "#":
            position = _LINE.match(plain, position).end()  # type: ignore[union-attr]
        elif char == "{":
            if depth == 0:
                before = plain[start : match.start()].rstrip()
                is_function = before.endswith(")") and "=" not in before
            depth += 1
        elif char in "([":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if char == "}" and depth == 0 and is_function:
                return position
        elif depth == 0:
            return position
    return len(plain)


def words_of(plain: str) -> frozenset[str]:
    """Identifiers and tags in text without comments; a call "name(" counts as "name" too."""
    found = set()
    for match in _WORD.finditer(plain):
        found.add(f"{match[1]} {match[2]}" if match[1] else match[3])
        if match[4]:
            found.add(f"{match[3]}(")
    return frozenset(found)


def _words_of_conditions(conditions: tuple[str, ...]) -> frozenset[str]:
    """What conditions use but for names that they only ask for."""
    return words_of(_DEFINED.sub("", " ".join(conditions)))


def _macro(
    text: str, plain: str, path: str, start: int, end: int, conditions: list[list[str]]
) -> Item:
    name = re.compile(r"#\s*define\s+(\w+)").match(plain, start)
    assert name is not None
    return Item(
        path=path,
        line=text.count("\n", 0, start) + 1,
        kind="macro",
        names=(name[1],),
        conditions=_spelled(conditions),
        text=text[start:end],
        words=words_of(plain[name.end() : end]) | _words_of_conditions(_spelled(conditions)),
        is_called=plain[name.end() : name.end() + 1] == "(",
    )


def _declaration(
    text: str, plain: str, path: str, start: int, end: int, conditions: list[list[str]]
) -> Iterator[Item]:
    body = plain[start:end]
    kind, names, parameters = _named(body)
    if not names:
        return
    spelled = _spelled(conditions)
    yield Item(
        path=path,
        line=text.count("\n", 0, start) + 1,
        kind=kind,
        names=names,
        conditions=spelled,
        text=text[start:end],
        words=(words_of(body) | _words_of_conditions(spelled)) - set(names),
        parameters=parameters,
        is_called=kind == "function",
    )


def _named(body: str) -> tuple[Kind, tuple[str, ...], tuple[str, ...]]:
    """Kind, names and parameters of a declaration; no names for one that defines nothing."""
    brace = body.find("{")
    head = body if brace < 0 else body[:brace]
    if body.endswith("}") and brace >= 0:
        name, parameters = _function_name(head)
        return "function", (name,) if name else (), parameters
    tags = tuple(f"{match[1]} {match[2]}" for match in _TAG_DEFINITION.finditer(body))
    enumerators = tuple(
        name
        for inside in re.findall(r"\benum\b[^{;]*\{([^}]*)\}", re.sub(r"\n\s*#[^\n]*", "\n", body))
        for name in re.findall(r"(?:^|,)\s*(\w+)", inside)
    )
    if head.startswith("typedef"):
        alias = re.search(r"\(\s*\*\s*(\w+)\s*\)|(\w+)\s*(?:\[[^]]*\])?\s*;$", body)
        return "type", (*tags, *enumerators, (alias[1] or alias[2]) if alias else ""), ()
    if tags or enumerators:
        return "type", (*tags, *enumerators), ()
    made = re.match(r"(?:static\s+)?DEFINE_\w+\s*\([^;]*?(\w+)\s*\)\s*;$", body, re.DOTALL)
    if made:
        return "variable", (made[1],), ()
    if re.match(r"(struct|union|enum)\s+\w+\s*;", body):
        return "variable", (), ()
    if head.startswith("extern") or "(" in head.split("=")[0]:
        return "variable", (), ()
    first = re.match(r"[\w\s*]*?\b(\w+)\s*(?:\[[^;=]*\]|__\w+|\s)*(?:=|;|,)", body)
    return "variable", (first[1],) if first and " " in head.strip() else (), ()


def _function_name(head: str) -> tuple[str, tuple[str, ...]]:
    for match in re.finditer(r"(\w+)\s*\(", head):
        if match[1] in _ATTRIBUTES or match[1] in _KEYWORDS:
            continue
        depth, end = 1, match.end()
        while depth and end < len(head):
            depth += {"(": 1, ")": -1}.get(head[end], 0)
            end += 1
        inside = head[match.end() : end - 1]
        names = [_PARAMETER_NAME.search(each.strip()) for each in inside.split(",")]
        parameters = tuple(found[1] for found in names if found and found[1] != "void")
        return match[1], parameters
    return "", ()
