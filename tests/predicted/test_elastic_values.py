"""What an elastic replay assumes: all that its recording shows, and general values beside."""

from dataclasses import replace

import pagealloc_model as pm
from pagealloc_model.policy import ElasticAssumptions
from pagealloc_model.predicted.elastic_values import elastic_values
from pagealloc_model.predicted.reclaim_mode import in_force
from tests.small_recordings import LITERAL, shipped_recording


def test_a_replay_takes_what_its_recording_shows(stock: pm.Recording) -> None:
    found = elastic_values(stock)
    assert {"kswapd_as_recorded", "lru_as_recorded", "kswapd_free_ns"} <= {*found.read}
    assert found.elastic != ElasticAssumptions()
    asked = pm.Assumptions(reclaim="elastic")
    replay = pm.replay(stock, assumptions=asked)
    assert replay.assumptions == in_force(asked, stock) == replace(asked, elastic=found.elastic)
    assert replay.imposed == ("kswapd's pace and CPU", "order of reclaim at the start")


def test_what_is_asked_for_is_not_overridden(stock: pm.Recording) -> None:
    asked = pm.Assumptions(reclaim="elastic", elastic=ElasticAssumptions(kswapd_free_ns=7))
    assert in_force(asked, stock) == asked
    assert in_force(LITERAL, stock) == LITERAL


def test_one_line_says_what_was_read_and_what_is_imposed(stock: pm.Recording) -> None:
    words = str(elastic_values(stock))
    assert words.startswith("Read off the recording: kswapd's pace and CPU*, order of reclaim")
    assert "* imposed" in words and "\n" not in words


def test_a_recording_without_reclaim_has_general_values() -> None:
    found = elastic_values(shipped_recording("xfree"))
    assert "kswapd_as_recorded" not in found.read and "lru_as_recorded" not in found.read
    assert found.elastic.kswapd_free_ns == ElasticAssumptions().kswapd_free_ns
    assert str(found).startswith("The recording shows none") or "general values" in str(found)


def test_costs_alone_impose_nothing(stock: pm.Recording) -> None:
    found = elastic_values(stock)
    alone = found.costs_alone.elastic
    assert alone is not None
    assert alone.imposed == ()
    assert alone.kswapd_free_ns == found.elastic.kswapd_free_ns
    assert alone.slab_survivors_per_mille == ElasticAssumptions().slab_survivors_per_mille
