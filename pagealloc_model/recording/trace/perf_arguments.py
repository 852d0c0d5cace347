"""What a recording is of, by perf's own command line: all of the machine, or a part (T1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from pagealloc_model.recording.trace import tracepoints as tp

WHOLE = "all tasks of all CPUs"
TASKS = "single tasks"
SOME_CPUS = "some CPUs"
FILTERED = "a part of the events (--filter)"
WITHOUT_PERF = "all tasks but perf itself (--exclude-perf)"
LAST_EVENTS = "the last events of each CPU (--overwrite)"
NOT_THE_KERNEL = "events of user mode (--all-user)"
SCOPES = (WHOLE, TASKS, SOME_CPUS, FILTERED, WITHOUT_PERF, LAST_EVENTS, NOT_THE_KERNEL)

_ALWAYS_RECORDED = (*tp.ESSENTIAL, tp.PAGE_FREE_BATCHED)
_MOST_CPUS = 8192
_FLAGS = "aAgvqnsdTPWiNBbRfS"
"""Short options of perf record that take no argument, and may stand together in one word."""
_VALUES = "eocFmCptuGDjkMrx"
"""Short options whose argument is the rest of the word, or the next one."""
_LONG_VALUES = {
    *("--event", "--output", "--count", "--freq", "--mmap-pages", "--cpu", "--pid", "--tid"),
    *("--uid", "--cgroup", "--filter", "--delay", "--clockid", "--realtime", "--call-graph"),
    *("--branch-filter", "--max-size", "--num-thread-synthesize", "--vmlinux", "--control"),
    *("--proc-map-timeout", "--affinity", "--mmap-flush", "--comp-level", "--clang-path"),
    *("--switch-output-event", "--switch-max-files", "--clang-opt", "--synth", "--setup-filter"),
}
"""Long options whose argument may be the next word."""
_LONG_READ = ("--all-cpus", "--exclude-perf", "--overwrite", "--all-user")
_LONG_ALIKE = (
    "--all-kernel",
    "--all-cgroups",
    "--exclude-hv",
    "--switch-output",
    "--switch-events",
)
"""Others that begin as those do: perf takes a name's beginning for the name if one alone fits."""
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
    filtered, events, cpus = False, "", ""
    for option, value in _options(words[place:]):
        if option == "--filter":
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
    if "" in seen and not seen & {"a", "C"}:
        return TASKS
    if filtered:
        return FILTERED
    partial = {
        "--all-user": NOT_THE_KERNEL,
        "--overwrite": LAST_EVENTS,
        "--exclude-perf": WITHOUT_PERF,
    }
    return next((scope for option, scope in partial.items() if option in seen), WHOLE)


def header_words(line: str) -> list[str]:
    """Words of the command line that `perf script --header` prints, which has no quotes.

    A filter's expression goes on to the next option.
    """
    words: list[str] = []
    in_filter = goes_on = False
    for word in line.split():
        if word.startswith("-"):
            name, equals, _ = word.partition("=")
            in_filter = _whole_name(name) == "--filter"
            goes_on = in_filter and bool(equals)
            words.append(word)
        elif goes_on:
            words[-1] += f" {word}"
        else:
            words.append(word)
            goes_on = in_filter
    return words


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
            name = _whole_name(name)
            if not equals and name in _LONG_VALUES:
                value = next(left, "")
            yield _SHORT_OF.get(name, name), value
        elif word.startswith("-") and len(word) > 1:
            yield from _cluster(word[1:], left)
        else:
            yield "", ""
            return


def _whole_name(name: str) -> str:
    """The long option that a word, which may be cut short, stands for."""
    known = {*_LONG_VALUES, *_LONG_READ, *_LONG_ALIKE}
    fitting = [each for each in known if each.startswith(name)]
    return fitting[0] if len(fitting) == 1 and name not in known else name


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
    """Whether a list of events has one that every replay needs; modifiers may follow a name."""
    names = [name.strip("'\"{} ").split("/")[0] for name in events.split(",")]
    names = [":".join(name.split(":")[:2]) for name in names]
    return any(fnmatchcase(main, name) for main in _ALWAYS_RECORDED for name in names if name)


def _count(cpus: str) -> int:
    """CPUs in a list such as 0-2,5."""
    known: set[int] = set()
    for part in cpus.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            known.update(range(int(first), min(int(last or first), _MOST_CPUS) + 1))
    return len(known)
