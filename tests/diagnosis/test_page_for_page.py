"""A guest recorded with its state at the begin and at the end is replayed page for page.

`quiet_guest`: Debian's kernel 6.12.117, 2 emulated CPUs, 512 MiB, waves of short processes, nothing
reclaimed. It was stopped and read from outside twice; a probe shows what alloc_pages_bulk() took.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from pagealloc_model.base.errors import RecordingError, UsageError
from pagealloc_model.cli import main
from pagealloc_model.diagnosis.departure_causes import UNSEEN, departure_causes
from pagealloc_model.diagnosis.page_for_page import PageForPage, page_for_page
from pagealloc_model.predicted.demand.bulk import BULK_RETURN
from pagealloc_model.recording.event_files import STORE_FILE
from pagealloc_model.recording.recording import Recording, open_recording
from pagealloc_model.recording.state_file import ON_FREE_LIST, read_state, write_state
from pagealloc_model.recording.trace.store import write_store

QUIET = Path(__file__).parents[2] / "data/quiet_guest"


@cache
def quiet() -> Recording:
    return open_recording(QUIET)


@cache
def judged() -> PageForPage:
    return page_for_page(quiet())


def test_a_state_agrees_with_itself() -> None:
    for dated in quiet().states:
        state = dated.state
        pfns, lists = state.list_of_entries(ON_FREE_LIST)
        pages = np.bincount(
            state.list_zone[lists], np.exp2(state.list_order[lists]), len(state.zone_start)
        )
        free = state.zone_stat[:, 0] + state.zone_stat_diff[:, :, 0].sum(axis=1)
        assert pages.tolist() == free.tolist()
        assert (state.page_refcount[pfns] == 0).all()


def test_every_request_gets_the_kernels_page() -> None:
    found = judged()
    assert found.requests == 18_119
    assert found.until_departure == found.requests
    assert found.share(1.0) == found.share() == 1.0
    assert found.null_share() < 0.25


def test_the_lists_at_the_end_are_the_kernels() -> None:
    found = judged()
    assert found.free_lists is not None
    assert found.pcp_lists is not None
    for lists, count, pages in ((found.free_lists, 28, 100_053), (found.pcp_lists, 6, 693)):
        assert (lists.lists, lists.same_order, lists.same_pages) == (count, count, count)
        assert (lists.pages, lists.pages_shared) == (pages, pages)
    assert found.blocks == (256, 256)
    assert found.order_distance == 0
    assert found.maps["recorded"].equals(found.maps["predicted"])
    assert found.maps["recorded"][["free_pages", "pcp_pages"]].to_numpy().sum() == 100_746
    assert not departure_causes(quiet(), found).departures


def test_without_a_probe_departures_have_causes_that_add_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copytree(QUIET, tmp_path / "unprobed")
    trace = quiet().whole_trace
    tables = {name: table for name, table in trace.tables.items() if name != BULK_RETURN}
    write_store(replace(trace, tables=tables), folder / STORE_FILE, source=None)
    recording = open_recording(folder)
    found = page_for_page(recording)
    assert 0.5 < found.share() < 0.95
    causes = departure_causes(recording, found)
    departed = int((~found.same).sum())
    recorded, predicted = found.maps["recorded"], found.maps["predicted"]
    assert recorded.equals(judged().maps["recorded"])
    assert not recorded["free_pages"].equals(predicted["free_pages"])
    assert sum(each.requests for each in causes.departures) == departed
    first = causes.departures[0]
    assert first.request == found.until_departure
    assert f"request {first.request} of order" in first.words()
    assert {each.cause for each in causes.departures} >= {UNSEEN}
    *rows, last = causes.table().rows
    assert last[1:3] == [len(causes.departures), departed]
    assert sum(row[2] for row in rows) == departed
    capsys.readouterr()
    assert main(["validate", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "requests with its page, all" in shown
    assert "cause of another page" in shown
    assert main(["validate", str(folder), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)["page_for_page"]
    assert content["share"] == found.share()
    assert sum(count for _, count in content["causes"].values()) == departed


def test_without_the_order_of_lists_pages_are_others(tmp_path: Path) -> None:
    folder = copytree(QUIET, tmp_path / "turned")
    file = folder / "states" / "begin.state"
    state = read_state(file)
    ends = np.cumsum(state.list_length)
    turned = [part[::-1] for part in np.split(state.listed_pfn, ends[:-1])]
    write_state(file, replace(state, listed_pfn=np.concatenate(turned)))
    assert page_for_page(open_recording(folder)).share() < judged().share() / 2


def test_a_state_of_another_recording_is_refused(tmp_path: Path) -> None:
    folder = copytree(QUIET, tmp_path / "other")
    file = folder / "states" / "begin.state"
    state = read_state(file)
    write_state(file, replace(state, event_count=state.event_count + 1_000_000))
    with pytest.raises(RecordingError, match="more events before it"):
        _ = open_recording(folder).trace


def test_a_recording_without_a_state_is_refused() -> None:
    with pytest.raises(UsageError, match="no state file"):
        page_for_page(open_recording("xfree"))
