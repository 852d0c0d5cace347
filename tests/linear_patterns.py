"""Whether a backtracking matcher takes steps that grow with a text's length only.

A pattern is taken as an automaton whose states are the characters and sets in it. A text of n
characters can take more than some steps for each where one text leads from p back to p in two ways
(2 to the n steps), or from p to p, from p to q and from q to q (n squared); see A. Weber and
H. Seidl, "On the degree of ambiguity of finite automata", 1991. Repeats of at most `BOUNDED` are
unrolled, so they count as a constant.
"""

from __future__ import annotations

import re
import re._constants as op  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

ALPHABET = (*map(chr, range(128)), "\x85", "\xa0", "\xe9", "\u2028", "\u0660")
BOUNDED, _UNROLLED = 512, 3
_PASSES = 2
_Condition = Callable[[str, str], bool]
"""Of the character that precedes, "" for none, and of the one that follows."""


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


class _Automaton:
    """Consuming arcs, and free ones with conditions, of a parsed pattern."""

    def __init__(self, parsed: Any, flags: int) -> None:
        self.free: dict[int, list[tuple[int, _Condition | None]]] = defaultdict(list)
        self.arcs: dict[int, tuple[frozenset[str], int]] = {}
        self.flags, self.count = flags, 0
        self.within: list[Any] = []
        self.loops = False
        self.first = self._new()
        self.last = self._sequence(parsed, self.first)

    def _new(self) -> int:
        self.count += 1
        return self.count

    def _consume(self, text: str, begin: int) -> int:
        end, here = self._new(), self._new()
        whole = re.compile(text, self.flags)
        self.free[begin].append((here, None))
        self.arcs[here] = (frozenset(c for c in ALPHABET if whole.fullmatch(c)), end)
        return end

    def _sequence(self, parsed: Any, begin: int) -> int:
        for code, value in parsed:
            begin = self._part(code, value, begin)
        return begin

    def _part(self, code: Any, value: Any, begin: int) -> int:
        if code in (op.LITERAL, op.NOT_LITERAL):
            escape = re.escape(chr(value))
            return self._consume(escape if code == op.LITERAL else f"[^{escape}]", begin)
        if code == op.ANY:
            return self._consume(".", begin)
        if code == op.IN:
            return self._consume(_set_text(value), begin)
        if code == op.SUBPATTERN:
            return self._sequence(value[3], begin)
        if code == op.BRANCH:
            end = self._new()
            for branch in value[1]:
                here = self._new()
                self.free[begin].append((here, None))
                self.free[self._sequence(branch, here)].append((end, None))
            return end
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            return self._repeat(*value, begin)
        end = self._new()
        if code in (op.POSSESSIVE_REPEAT, op.ATOMIC_GROUP):
            return self._kept(value[2] if code == op.POSSESSIVE_REPEAT else value, begin, end)
        condition: _Condition | None = None
        if code == op.AT:
            condition = _CONDITIONS.get(value)
            if value == op.AT_BEGINNING and self.flags & re.MULTILINE:
                condition = lambda before, _: before in ("", "\n")  # noqa: E731
        if code in (op.ASSERT, op.ASSERT_NOT) and len(value[1]) == 1:
            condition = self._looked(code, *value)
        self.free[begin].append((end, condition))
        return end

    def _kept(self, body: Any, begin: int, end: int) -> int:
        """What is never given back goes on as long as it can; what is within it counts alone."""
        probe = _Automaton(body, self.flags)
        self.within.append(body)
        self.loops = True
        taken = frozenset().union(*(characters for characters, _ in probe.arcs.values()))
        arc = self._new()
        self.free[begin].append((arc, None))
        self.arcs[arc] = (taken, begin)
        self.free[begin].append((end, lambda _, after: after not in taken))
        return end

    def _looked(self, code: Any, direction: int, parsed: Any) -> _Condition | None:
        """A look at one character is a condition where it is for a word's characters."""
        probe = _Automaton(parsed, self.flags)
        taken = set().union(*(characters for characters, _ in probe.arcs.values()))
        wanted = code == op.ASSERT
        if direction > 0:
            return lambda _, after: (after in taken) == wanted if len(probe.arcs) == 1 else True
        return lambda before, _: (before in taken) == wanted

    def _repeat(self, least: int, most: int, body: Any, begin: int) -> int:
        for _ in range(min(least, _UNROLLED)):
            begin = self._sequence(body, begin)
        end = self._new()
        if most <= BOUNDED:
            for _ in range(min(most - least, _UNROLLED)):
                self.free[begin].append((end, None))
                begin = self._sequence(body, begin)
            self.free[begin].append((end, None))
            return end
        loop, self.loops = self._new(), True
        self.free[begin].append((loop, None))
        self.free[loop].append((end, None))
        self.free[self._sequence(body, loop)].append((loop, None))
        return end

    def ended(self) -> set[int]:
        """The states from which nothing more is wanted."""
        states = {self.last}
        while more := {
            state
            for state, ways in self.free.items()
            if state not in states
            and any(there in states and condition is None for there, condition in ways)
        }:
            states |= more
        return states

    def steps(self, state: int, before: str, character: str) -> Iterator[int]:
        """Where a character leads, once for each way."""

        def follow(here: int, path: tuple[int, ...]) -> Iterator[int]:
            if here in self.arcs and character in self.arcs[here][0]:
                yield self.arcs[here][1]
            for there, condition in self.free[here]:
                # A loop may be left and entered again without a character, once.
                if path.count(there) < _PASSES and (
                    condition is None or condition(before, character)
                ):
                    yield from follow(there, (*path, there))

        return follow(state, (state,))


def _set_text(items: Any) -> str:
    categories = {
        op.CATEGORY_DIGIT: r"\d",
        op.CATEGORY_NOT_DIGIT: r"\D",
        op.CATEGORY_SPACE: r"\s",
        op.CATEGORY_NOT_SPACE: r"\S",
        op.CATEGORY_WORD: r"\w",
        op.CATEGORY_NOT_WORD: r"\W",
    }
    text = ""
    for code, value in items:
        if code == op.NEGATE:
            text += "^"
        elif code == op.LITERAL:
            text += re.escape(chr(value))
        elif code == op.RANGE:
            text += f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
        else:
            text += categories[value]
    return f"[{text}]"


_CONDITIONS: dict[Any, _Condition] = {
    op.AT_BOUNDARY: lambda before, after: _is_word(before) != _is_word(after),
    op.AT_BEGINNING: lambda before, _: before == "",
    op.AT_BEGINNING_STRING: lambda before, _: before == "",
    op.AT_END: lambda _, after: after == "\n",
    op.AT_END_STRING: lambda _before, _after: False,
}
_State = tuple[int, str]


def ambiguity(
    pattern: str | re.Pattern[str], *, anywhere: bool = False, whole: bool = False
) -> str:
    """How steps grow beyond a text's length: "exponential", "polynomial", or "" if they do not.

    Args:
        pattern: a text or compiled.
        anywhere: it is searched for, not matched from a text's beginning.
        whole: it must match a text to its end.
    """
    compiled = re.compile(pattern)
    parsed = parser.parse(compiled.pattern, compiled.flags)
    return ambiguity_of(parsed, compiled.flags & ~re.UNICODE, anywhere=anywhere, whole=whole)


def ambiguity_of(parsed: Any, flags: int, *, anywhere: bool = False, whole: bool = True) -> str:
    """The same of a parsed pattern or part of one."""
    automaton = _Automaton(parsed, flags)
    start: _State = (automaton.first, "")
    if any(ambiguity_of(each, flags) for each in automaton.within):
        return "exponential"
    if not automaton.loops:
        return ""
    if anywhere:
        automaton.free[here := automaton._new()].append((automaton.first, None))
        automaton.free[here].append((arc := automaton._new(), None))
        automaton.arcs[arc] = (frozenset(ALPHABET), here)
        start = (here, "")
    letters = _letters(automaton)
    moves: dict[_State, dict[str, list[_State]]] = {}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        if state in moves:
            continue
        moves[state] = {}
        for letter in letters:
            ends = [(end, letter) for end in automaton.steps(*state, letter)]
            if ends:
                moves[state][letter] = ends
                waiting.extend(ends)
    component = _components(
        {s: {e for ends in by.values() for e in ends} for s, by in moves.items()}
    )
    inner = {
        state: {
            letter: kept
            for letter, ends in by.items()
            if (kept := [end for end in ends if component[end] == component[state]])
        }
        for state, by in moves.items()
    }
    if _twice_around(inner):
        return "exponential"
    # All but a match of the whole text has ended where nothing more is wanted.
    ended = set() if whole else automaton.ended()
    return "polynomial" if _two_loops(moves, inner, component, ended) else ""


def _letters(automaton: _Automaton) -> list[str]:
    """One character of each kind that no set of the pattern tells apart."""
    sets = {characters for characters, _ in automaton.arcs.values()}
    kinds: dict[tuple[Any, ...], str] = {}
    for character in ALPHABET:
        signature: tuple[Any, ...] = (
            *(character in each for each in sets),
            _is_word(character),
            character == "\n",
        )
        kinds.setdefault(signature, character)
    return list(kinds.values())


def _twice_around(inner: dict[_State, dict[str, list[_State]]]) -> bool:
    """A state is reached from itself by one text in two ways."""
    for state, by in inner.items():
        for ends in by.values():
            if len(ends) > len(set(ends)):
                return True
        pairs = {(a, b) for ends in by.values() for a in set(ends) for b in set(ends) if a < b}
        if pairs and _reach_together(inner, pairs, (state, state)):
            return True
    return False


def _reach_together(
    inner: dict[_State, dict[str, list[_State]]],
    pairs: set[tuple[_State, ...]],
    goal: tuple[_State, ...],
) -> bool:
    seen, waiting = set(pairs), deque(pairs)
    while waiting:
        several = waiting.popleft()
        if several == goal:
            return True
        for following in _together(several, [inner] * len(several)):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def _together(
    states: tuple[_State, ...], of: list[dict[_State, dict[str, list[_State]]]]
) -> Iterator[tuple[_State, ...]]:
    """Where one letter leads several states together."""
    tables = [moves[state] for moves, state in zip(of, states, strict=True)]
    for letter in tables[0]:
        if all(letter in table for table in tables):
            ways: list[tuple[_State, ...]] = [()]
            for table in tables:
                ways = [(*way, end) for way in ways for end in set(table[letter])]
            yield from ways


def _two_loops(
    moves: dict[_State, dict[str, list[_State]]],
    inner: dict[_State, dict[str, list[_State]]],
    component: dict[_State, int],
    ended: set[int],
) -> bool:
    """One text leads from p to p, from p to another q, and from q to q."""
    looping = [state for state, by in inner.items() if by]
    reach: dict[_State, set[_State]] = {}
    for p in looping:
        seen, waiting = {p}, deque([p])
        while waiting:
            for ends in moves[waiting.popleft()].values():
                for end in set(ends) - seen:
                    seen.add(end)
                    waiting.append(end)
        reach[p] = seen
    for p in looping:
        for q in looping:
            if q[0] in ended or component[p] == component[q] or q not in reach[p]:
                continue
            if _text_for(p, q, moves, inner):
                return True
    return False


def _text_for(
    p: _State,
    q: _State,
    moves: dict[_State, dict[str, list[_State]]],
    inner: dict[_State, dict[str, list[_State]]],
) -> bool:
    seen: set[tuple[_State, ...]] = set()
    waiting = deque([(p, p, q)])
    while waiting:
        for following in _together(waiting.popleft(), [inner, moves, inner]):
            if following == (p, q, q):
                return True
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


def _components(edges: dict[_State, set[_State]]) -> dict[_State, int]:
    """The strongly connected part of each state, by number (Kosaraju)."""
    order: list[_State] = []
    seen: set[_State] = set()
    for root in edges:
        stack = [(root, iter(edges[root]))] if root not in seen else []
        seen.add(root)
        while stack:
            state, rest = stack[-1]
            following = next((end for end in rest if end not in seen), None)
            if following is None:
                order.append(stack.pop()[0])
            else:
                seen.add(following)
                stack.append((following, iter(edges[following])))
    back: dict[_State, set[_State]] = {state: set() for state in edges}
    for state, ends in edges.items():
        for end in ends:
            back[end].add(state)
    component: dict[_State, int] = {}
    for number, root in enumerate(reversed(order)):
        waiting = [root] if root not in component else []
        while waiting:
            state = waiting.pop()
            if state not in component:
                component[state] = number
                waiting += [end for end in back[state] if end not in component]
    return component
