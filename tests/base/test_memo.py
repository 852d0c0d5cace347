"""What is kept with a value."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, replace

import pytest

import pagealloc_model as pm
from pagealloc_model.base.memo import Memo


@dataclass(frozen=True, eq=False)
class Named(Memo):
    name: str


def test_a_result_is_found_once_for_each_key_and_value() -> None:
    first, found = Named("first"), list[str]()

    def find() -> list[str]:
        found.append("")
        return ["result"]

    assert first.remembered("key", find) is first.remembered("key", find)
    assert found == [""]
    first.remembered(("key", 1), find)
    replace(first, name="second").remembered("key", find)
    assert len(found) == 3


def test_a_search_that_fails_is_made_again() -> None:
    value = Named("value")
    with pytest.raises(ZeroDivisionError):
        value.remembered("key", lambda: 1 / 0)
    assert value.remembered("key", lambda: 1) == 1


def test_a_recording_is_let_go_with_its_results() -> None:
    recording = pm.open("kbuild")
    assert recording.provenance() is recording.provenance()
    reference = weakref.ref(recording)
    del recording
    gc.collect()
    assert reference() is None
