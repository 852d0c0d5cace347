"""A fake of perf's Python module: what either generation offers, fed with events by a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

FORMAT_ID = 4


class Sample(SimpleNamespace):
    """A sample; its tracepoint's fields are attributes like its own."""


class Lost(SimpleNamespace):
    """A record of lost events."""


class Comm(SimpleNamespace):
    """A thread's new name."""


class Task(SimpleNamespace):
    """A fork or an exit."""


@dataclass
class Evlist:
    """Buffers of two CPUs that get one pile of events at each poll.

    Attributes:
        piles: for each poll, the events of each CPU.
        selectors: one per event asked for.
        calls: what was called, in order.
    """

    piles: list[dict[int, list[Any]]]
    selectors: list[SimpleNamespace] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    waiting: dict[int, list[Any]] = field(default_factory=lambda: {0: [], 1: []})

    def __iter__(self) -> Iterator[SimpleNamespace]:
        return iter(self.selectors)

    def add(self, selector: SimpleNamespace) -> None:
        self.selectors.append(selector)

    def config(self) -> None:
        self.calls.append("config")

    def open(self) -> None:
        self.calls.append("open")

    def enable(self) -> None:
        self.calls.append("enable")

    def mmap(self, pages: int) -> None:
        self.calls.append(f"mmap {pages}")
        self.poll(0)

    def poll(self, timeout: int) -> None:
        if self.piles:
            for cpu, events in self.piles.pop(0).items():
                self.waiting[cpu] += events

    def read_on_cpu(self, cpu: int) -> Any:
        return self.waiting[cpu].pop(0) if self.waiting[cpu] else None


def fake_module(piles: Sequence[dict[int, list[Any]]], *, by_name: bool) -> Any:
    """The module; its `made` attribute is the Evlist once there is one."""
    module = SimpleNamespace(
        __file__="/fake/perf.so",
        cpu_map=lambda: (0, 1),
        thread_map=lambda _: None,
        sample_event=Sample,
        lost_event=Lost,
        comm_event=Comm,
        task_event=Task,
        FORMAT_ID=FORMAT_ID,
        SAMPLE_TID=2,
        SAMPLE_TIME=4,
        SAMPLE_ID=64,
        SAMPLE_CPU=128,
        SAMPLE_RAW=1024,
        TYPE_TRACEPOINT=2,
    )

    def make(*_: object) -> Evlist:
        module.made = Evlist(list(piles))
        return module.made

    def parse_events(names: str, *_: object) -> Evlist:
        events = make()
        for name in names.split(","):
            events.add(SimpleNamespace(name=name, tracking=True, read_format=0))
        return events

    if by_name:
        module.parse_events = parse_events
    else:
        module.evlist = make
        module.evsel = SimpleNamespace
        module.tracepoint = lambda system, name: 7 if name.startswith("mm_page") else -1
    return module


def reading_module(samples: Sequence[Any], fail: Callable[[], None] = lambda: None) -> Any:
    """A module that reads files: it hands over these samples, whatever the file."""

    class Session:
        def __init__(self, data: str, sample: Callable[[Any], None]) -> None:
            self._take = sample

        def process_events(self) -> None:
            fail()
            for sample in samples:
                self._take(sample)

    return SimpleNamespace(__file__="/fake/perf.so", data=str, session=Session)
