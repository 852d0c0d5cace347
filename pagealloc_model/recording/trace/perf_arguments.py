"""What a recording is of, by perf's own command line: all of the machine, or a part (T1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

WHOLE = "all tasks of all CPUs"
TASKS = "single tasks"
SOME_CPUS = "some CPUs"
FILTERED = "a part of the events (--filter)"
SCOPES = (WHOLE, TASKS, SOME_CPUS, FILTERED)

_ALWAYS_RECORDED = ("kmem:mm_page_alloc", "kmem:mm_page_free", "kmem:mm_page_free_batched")
_FLAGS = "aAgvqnsdTPWiNBbRfS"
"""Short options of perf record that take no argument, and may stand together in one word."""
_VALUES = "eocFmCptuGDjkMrx"
"""Short options whose argument is the rest of the word, or the next one."""
_LONG_VALUES = {
    *("--event", "--output", "--count", "--freq", "--mmap-pages", "--cpu", "--pid", "--tid"),
    *("--uid", "--cgroup", "--filter", "--delay", "--clockid", "--realtime", "--call-graph"),
    *("--branch-filter", "--max-size", "--num-thread-synthesize", "--vmlinux"),
    *(
        "--proc-map-timeout",
        "--control",
        "--affinity",
        "--mmap-flush",
        "--comp-level",
        "--switch-output-event",
    ),
}
_SHORT_OF = {
    "--event": "e",
    "--cpu": "C",
    "--pid": "p",
    "--tid": "t",
    "--uid": "u",
    "--cgroup": "G",
    "--all-cpus": "a",
}


def recorded_scope(words: Sequence[str], nr_cpus: int = 0) -> str:
    """Which of `SCOPES` a command line such as "perf record -C 1 -e ..." asks for, "" for another.

    Tools that record for themselves (`perf kmem record`) record all CPUs. Without a target and
    without a command to run, perf records all CPUs, too.

    Args:
        words: perf's command line.
        nr_cpus: CPUs online, 0 if unknown: a list of all of them is the whole machine.
    """
    if "record" not in words:
        return ""
    words = list(words)
    place = words.index("record") + 1
    of_tool = any(not word.startswith("-") for word in words[1 : place - 1])
    seen = {"a"} if of_tool else set()
    filtered, events, cpus, has_command = False, "", "", False
    for option, value in _options(words[place:]):
        if option == "":
            has_command = True
        elif option == "--filter":
            filtered = filtered or _has_main_event(events)
        elif option == "e":
            events = value
        elif option == "C":
            cpus = value
        seen.add(option)
    if seen & {"p", "t", "u", "G"}:
        return TASKS
    if "C" in seen and not (nr_cpus and _count(cpus) >= nr_cpus):
        return SOME_CPUS
    if has_command and not seen & {"a", "C"}:
        return TASKS
    return FILTERED if filtered else WHOLE


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options by their short names where they have one, and their values; "" is the command."""
    left = iter(words)
    for word in left:
        if word == "--":
            if next(left, None) is not None:
                yield "", ""
            return
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            if not equals and name in _LONG_VALUES:
                value = next(left, "")
            yield _SHORT_OF.get(name, name), value
        elif word.startswith("-") and len(word) > 1:
            yield from _cluster(word[1:], left)
        else:
            yield "", ""
            return


def _cluster(letters: str, left: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Short options of one word: flags, and at most one with a value."""
    for place, letter in enumerate(letters):
        if letter in _FLAGS:
            yield letter, ""
            continue
        value = letters[place + 1 :]
        if not value and letter in _VALUES:
            value = next(left, "")
        yield letter, value
        return


def _has_main_event(events: str) -> bool:
    """Whether a list of events has one that every replay needs."""
    names = [name.strip("'\"{} ").split("/")[0] for name in events.split(",")]
    return any(fnmatchcase(main, name) for main in _ALWAYS_RECORDED for name in names if name)


def _count(cpus: str) -> int:
    """CPUs in a list such as 0-2,5."""
    count = 0
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            count += int(last or first) - int(first) + 1
    return count
