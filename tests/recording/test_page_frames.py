"""Memory that begins far up or has large holes: results are those of the same memory without."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest

from pagealloc_model.cli.main import main
from pagealloc_model.recording.page_frames import (
    END_OF_NUMBERS,
    NO_HOLES,
    SMALLEST_HOLE,
    PageFrames,
)
from pagealloc_model.recording.proc.pages import read_kpageflags
from pagealloc_model.recording.recorded_machine import recorded_machine
from pagealloc_model.recording.recording import WITHOUT_HOLES, open_recording
from tests.recording.rewritten_store import rewrite

FAR = 1 << 31
"""Page frames of 8 TiB, where memory of an Ampere Altra begins."""
FURTHER = 1 << 34
HOLES = PageFrames(((0, FAR), (FAR + (1 << 20), FURTHER)))


def test_frames_close_up_and_open_again() -> None:
    pfn = np.array([-1, 5, FAR, FAR + 1, FAR + (1 << 20), FURTHER, FURTHER + 9, FURTHER * 8])
    index = HOLES.indices(pfn)
    assert index[[0, 2, 3, 5, 6]].tolist() == [-1, 0, 1, 1 << 20, (1 << 20) + 9]
    assert (index[[1, 4]] >= END_OF_NUMBERS).all()  # in holes: no page of memory
    assert HOLES.numbers(index).tolist() == pfn.tolist()
    words = np.array([FAR + 7, 2**64 - 1], np.uint64)
    assert HOLES.indices(words).tolist() == [7, 2**64 - 1]
    assert NO_HOLES.indices(pfn) is pfn


def test_small_holes_stay() -> None:
    usual = [(1, 4096), (4096, 786432), (1 << 20, 1 << 22)]
    assert PageFrames.of(usual) == NO_HOLES
    hole = (1 << 22, (1 << 22) + SMALLEST_HOLE)
    later = (hole[1] + 100, hole[1] + 5000)
    assert PageFrames.of([later, *usual]).holes == (hole,)
    assert PageFrames.of([*usual, (hole[1] - 1, later[1])]) == NO_HOLES


def test_words_of_holes_are_passed_over(tmp_path: Path) -> None:
    """A file as the kernel gives it, which numbers holes too."""
    frames = PageFrames(((0, 1 << 15), ((1 << 15) + 4, 1 << 16)))
    words = np.arange((1 << 16) + 6, dtype="<u8")
    path = tmp_path / "flags.gz"
    path.write_bytes(gzip.compress(words.tobytes(), 1))
    read = read_kpageflags(path, 10, frames)
    assert read.tolist() == [*range(1 << 15, (1 << 15) + 4), *range(1 << 16, (1 << 16) + 6)]


def shifted(source: Path, destination: Path, places: dict[int, int]) -> Path:
    """A copy of a recording whose nodes' page frames are moved up; holes of the words left out."""
    recording = open_recording(source)
    recording.trim(destination)
    zones = [zone for zone in recorded_machine(recording).zones if zone.managed]
    first = {node: min(one.start_pfn for one in zones if one.node == node) for node in places}

    def moved(pfn: np.ndarray) -> np.ndarray:
        frames = pfn.astype(np.int64)
        by = np.zeros(len(frames), np.int64)
        for node, shift in places.items():
            by[frames >= first[node]] = shift
        return (frames + np.where(frames < 0, 0, by)).astype(pfn.dtype)

    def change(name: str, values: np.ndarray) -> np.ndarray:
        return moved(values) if name.endswith("pfn") else values

    rewrite(destination / "events.arrow", change=change)
    for file in destination.glob("snapshots/*/zoneinfo"):
        parts = re.split(r"(?m)^(?=Node)", file.read_text())
        for number, text in enumerate(parts):
            if re.search(r"spanned +[1-9]", text):
                place = re.search(r"start_pfn: +(\d+)", text)
                assert place is not None
                begin = int(place[1]) + places[int(text[5 : text.index(",")])]
                parts[number] = text[: place.start(1)] + str(begin) + text[place.end(1) :]
        file.write_text("".join(parts))
    meta = json.loads((destination / "meta.json").read_text())
    meta[WITHOUT_HOLES] = open_recording(destination).frames.holes
    (destination / "meta.json").write_text(json.dumps(meta))
    return destination


def answers(recording: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What commands print of a recording."""
    printed = []
    for command, *options in (
        ("info", "--json"),
        ("validate", "--json"),
        ("explain", "--order", "9", "--json"),
        ("replay", "--set", "pcp_batch=31", "--json"),
        ("compare", "--base", "pcp_batch=63", "--patch", "pcp_batch=31", "--json"),
    ):
        assert main([command, str(recording), *options]) in (0, 1)
        printed.append(re.sub(rf"{recording}|\b[0-9a-f]{{64}}\b", "", capsys.readouterr().out))
    return printed


def test_memory_from_8_tib_on_is_replayed_as_if_it_began_at_0(
    shipped: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two nodes, the second of which lies at another 64 TiB."""
    source = shipped("two_nodes_A1")  # type: ignore[operator]
    (tmp_path / "near").mkdir()
    (tmp_path / "far").mkdir()
    near = shifted(source, tmp_path / "near" / "it", {0: 0, 1: 0})
    far = shifted(source, tmp_path / "far" / "it", {0: FAR, 1: FURTHER})
    recording = open_recording(far)
    assert len(recording.frames.holes) == 2
    own = answers(near, capsys)
    for one, other in zip(own, answers(far, capsys), strict=True):
        assert one.splitlines() == other.splitlines()
    frames = recording.trace.to_pandas()["pfn"]
    assert frames.max() > FURTHER
    assert frames[frames >= 0].min() >= FAR
    where = open_recording(near).trace.to_pandas()["pfn"]
    assert (frames.to_numpy() >= where.to_numpy()).all()
