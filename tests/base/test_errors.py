"""Tests of `pagealloc_model/base/errors.py`."""

from __future__ import annotations

import pickle

import pagealloc_model as pm


def test_an_error_crosses_into_another_process_as_it_is() -> None:
    error = pm.RecordingError("a/meta.json", "no number", offset=17, todo="record anew")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), vars(again)) == (str(error), vars(error))
