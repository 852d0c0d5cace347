"""Sites of zone->lock by name."""

from __future__ import annotations

from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import sites


def test_every_code_of_the_log_has_a_name_and_a_cause() -> None:
    assert len(sites.NAMES) == at.SITES + 2
    assert sites.NAMES[at.SITE_REFILL] == "refill"
    assert sites.NAMES[at.SITE_DRAIN_DECAY] == "drain"
    assert sites.CAUSES_BY_CODE[at.SITE_DRAIN_DECAY] == "decay"
    assert sites.NAMES[at.SITE_BOOST_RESET] == "boost_reset"
    assert sites.NAMES[sites.EMPTY_BUDDY_ALLOC] == "empty_buddy_alloc"


def test_a_site_is_performed_or_says_why_not() -> None:
    for site in sites.SITES:
        assert bool(site.causes) != bool(site.left_out)
        assert bool(site.colour) == bool(site.causes)
    assert {*sites.MOVING, *sites.EMPTY_SITES} <= {*sites.PERFORMED}
    assert {*sites.MOVING} < {*sites.MEASURED}
