"""The page cache under another largest order (S10.14), against the oracle and on recordings."""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pagealloc_model as pm
from pagealloc_model.allocator import layout as at
from pagealloc_model.allocator import objects as resolved
from pagealloc_model.allocator import pressure_layout as pr
from pagealloc_model.base.errors import PolicyError
from pagealloc_model.measured.costs import at_recorded_cost
from pagealloc_model.policy.kernel_rules import KernelRules
from pagealloc_model.policy.policy import Assumptions, Policy
from pagealloc_model.predicted import replay as replay_module
from pagealloc_model.predicted.demand import folio_orders
from pagealloc_model.predicted.demand.demand import Demand, resolve_demand
from pagealloc_model.predicted.demand.elastic import page_cache_places
from pagealloc_model.predicted.demand.folio_orders import with_page_cache_orders
from pagealloc_model.recording.recorded_machine import start_snapshots
from tests.oracle.readahead import Kernel, Request, asked
from tests.predicted.demand.test_elastic import Files
from tests.predicted.demand.test_folio_orders import _check_frees
from tests.small_recordings import small_machine

ELASTIC = Assumptions(reclaim="elastic")
FILE = pr.FILE << pr.CLASS_SHIFT
BITS = {
    "ahead": FILE | pr.GFP_NORETRY,
    "write": FILE | at.GFP_WRITE | pr.GFP_NORETRY,
    "other": pr.ANON << pr.CLASS_SHIFT,
}
KERNELS = {"6.1": Kernel(False, False), "6.12": Kernel(False, True), "7.3": Kernel(True, True)}
Places = tuple[np.ndarray, np.ndarray]


def drawn(seed: int) -> tuple[list[Request], Demand, np.ndarray, Places]:
    """Requests of three tasks in bursts, some with files, some failed; the same as a demand."""
    rng = random.Random(seed)
    requests: list[Request] = []
    time_ns, has_files = 1_000, rng.random() < 0.9
    next_index: dict[int, int] = {}
    for _ in range(rng.randrange(5, 25)):
        task, kind = rng.randrange(3), rng.choice(("ahead", "ahead", "ahead", "write", "other"))
        bits = BITS[kind] | (rng.random() < 0.1) * pr.GFP_IO
        orders = (0, 0, 0, 0, 2, 3, 5)
        order, lead = rng.choice(orders), None
        file = rng.randrange(2) if has_files and rng.random() < 0.9 else None
        index = next_index.get(file or 0, rng.randrange(40))
        if order and rng.random() < 0.3:
            lead = len(requests)
            requests.append(Request(lead, task, order, time_ns, kind, bits, failed=True))
            order = 0
        for _ in range(rng.choice((1, 2, 3, 4, 7, 8, 16, 31, 32, 33, 70)) if not order else 2):
            time_ns += rng.choice((1, 1, 1, 2, 4, 5) if rng.random() < 0.97 else (40,))
            page = None if file is None or kind == "other" else (file, index)
            number = len(requests)
            requests.append(Request(number, task, order, time_ns, kind, bits, page, lead))
            index += 1 << order if rng.random() < 0.98 else 3
        time_ns += rng.choice((1, 4, 9, 50))
        if file is not None:
            next_index[file] = index
    return (requests, *as_demand(requests, rng))


def as_demand(requests: list[Request], rng: random.Random) -> tuple[Demand, np.ndarray, Places]:
    """Events of requests, most of them freed later, and the place of each in its file."""
    freed = [each for each in requests if not each.failed and rng.random() < 0.9]
    events = np.zeros(len(requests) + len(freed), at.EVENT)
    for row, each in enumerate(requests):
        own = events[row]
        own["operation"] = at.RECORDED_FAILURE if each.failed else at.ALLOC
        own["object"], own["order"], own["bits"] = each.name, each.order, each.bits
        own["time_ns"] = each.time_ns
    for row, each in enumerate(freed, len(requests)):
        own = events[row]
        own["operation"], own["object"], own["order"] = at.FREE, each.name, each.order
        own["time_ns"] = requests[-1].time_ns + row
    objects = np.zeros(len(requests), resolved.OBJECT)
    objects["order"] = [each.order for each in requests]
    counted = dict.fromkeys(
        ("missed_frees", "split_frees", "hidden_allocations", "hidden_over_losses"), 0
    ) | dict.fromkeys(("repeated_frees", "failed_charges", "recorded_twice", "outside"), 0)
    leads = [-1 if each.lead is None else each.lead for each in requests]
    demand = Demand(
        events=events, objects=objects, leads=np.array(leads, np.int32), kswapd_recorded=False,
        direct_reclaim_recorded=False, **counted,
    )  # fmt: skip
    pages = np.array([each.page or (-1, 0) for each in requests], np.int64)
    tasks = [each.task for each in (*requests, *freed)]
    return demand, np.array(tasks, np.int64), (pages[:, 0], pages[:, 1])


def outlines(demand: Demand, known: int, failures: set[int]) -> list[tuple[object, ...]]:
    """Trees of requests by what replaces what, in the order in which they are asked for."""
    requests = demand.events[np.isin(demand.events["operation"], (at.ALLOC, at.RECORDED_FAILURE))]
    requests = requests[~np.isin(requests["object"], list(failures))]
    children: dict[int, list[int]] = {}
    tops = []
    for number in requests["object"].tolist():
        lead = int(demand.leads[number])
        (tops if lead < 0 or lead in failures else children.setdefault(lead, [])).append(number)

    def outline(number: int) -> tuple[object, ...]:
        below = tuple(outline(each) for each in children.get(number, []))
        return int(demand.objects["order"][number]), number < known, below

    return [outline(number) for number in tops]


def shape(tree: tuple[object, ...]) -> tuple[object, ...]:
    order, _, is_unit, children = tree
    return order, is_unit, tuple(shape(each) for each in children)  # type: ignore[union-attr]


Change = Callable[..., Demand]


def disagrees(seed: int, change: Change = with_page_cache_orders) -> bool:
    """Whether a drawn stream is asked for otherwise than the oracle says."""
    requests, demand, tasks, places = drawn(seed)
    largest = random.Random(seed).choice((0, 1, 2, 2, 4, 5, 9))
    name = random.Random(seed + 1).choice([*KERNELS])
    is_told = any(each.page for each in requests)
    if (
        largest
        and not is_told
        and all(each.order <= largest or each.kind == "other" for each in requests)
    ):
        return False
    found = change(demand, tasks, largest, KernelRules.preset(name), places)
    left_out = {each.name for each in requests if each.failed and each.kind != "other"}
    left_out = {number for number in left_out if requests[number].order > largest}
    for each in requests:
        each.lead = None if each.lead in left_out else each.lead
    failures = {each.name for each in requests if each.failed}
    expected = [shape(tree) for tree in asked(requests, largest, KERNELS[name])]
    _check_frees(found)
    return outlines(found, len(demand.objects), failures) != expected


@pytest.mark.parametrize("seed", range(80))
def test_the_page_cache_asks_as_the_oracle_says(seed: int) -> None:
    assert not disagrees(seed)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        # A folio's index need not be a multiple of its size.
        ("(index + place) % (1 << own) or place", "place"),
        # A window that is not the file's first asks for no more than the first.
        ("order + 2 if goes_on else first", "first"),
        # What a write falls to is single pages at once.
        ("list(range(largest, 0, -1)) if is_write[row] else", ""),
        # Windows are cut by indices alone.
        ("(gaps <= 4 * times[len(times) // 2])", "True"),
    ],
)
def test_the_comparison_finds_a_seeded_fault(
    right: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(folio_orders.__file__).read_text()
    assert source.count(right) == 1
    module = types.ModuleType("seeded_folio_orders")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source.replace(right, wrong), "seeded", "exec"), module.__dict__)
    assert any(disagrees(seed, module.with_page_cache_orders) for seed in range(80))


def stream(pages: int, kind: str = "ahead", order: int = 0, index: int = 0) -> list[Request]:
    """Requests of one task for a file's pages from an index on."""
    places = [(0, index + (n << order)) for n in range(pages)]
    return [Request(n, 1, order, n + 1, kind, BITS[kind], at) for n, at in enumerate(places)]


def orders_asked(requests: list[Request], largest: int, rules: str) -> list[int]:
    demand, tasks, places = as_demand(requests, random.Random(0))
    found = with_page_cache_orders(demand, tasks, largest, KernelRules.preset(rules), places)
    is_top = (found.events["operation"] != at.FREE) & (found.leads[found.events["object"]] < 0)
    return [int(order) for order in found.events["order"][is_top]]


@pytest.mark.parametrize(
    ("index", "pages", "largest", "rules", "expected"),
    [
        (0, 7, 5, "6.12", [2, 1, 0]),
        (0, 7, 5, "6.1", [2, 0, 0, 0]),
        (3, 7, 5, "6.12", [0, 2, 1]),
        (0, 3, 5, "6.12", [0, 0, 0]),
        (0, 32 + 32, 5, "6.12", [2] * 8 + [4, 4]),
        (0, 32 + 32, 3, "6.12", [2] * 8 + [3] * 4),
        (0, 32 + 32 + 32, 9, "7.3", [0] * 32 + [2] * 8 + [4, 4]),
        (0, 4, 0, "6.12", [0, 0, 0, 0]),
    ],
)
def test_windows_grow(
    index: int, pages: int, largest: int, rules: str, expected: list[int]
) -> None:
    assert orders_asked(stream(pages, index=index), largest, rules) == expected


def test_what_no_event_tells_stays_and_is_refused_where_nothing_else_changes() -> None:
    without = [replace(each, page=None) for each in stream(8)]
    with pytest.raises(PolicyError, match="only filemap"):
        orders_asked(without, 2, "6.12")
    large = replace(stream(9, order=3)[8], page=None)
    demand, tasks, places = as_demand([*without, large], random.Random(0))
    found = with_page_cache_orders(demand, tasks, 2, KernelRules.preset("6.12"), places)
    assert found.by_orders["reads_left"] == 8 and found.by_orders["page_cache_split"] == 1


def test_a_folio_that_fails_becomes_its_pages_and_a_write_falls_order_by_order() -> None:
    for kind, below in (("ahead", [2, 0]), ("write", [2, 1, 0])):
        demand, tasks, places = as_demand(stream(1, kind, order=3), random.Random(0))
        found = with_page_cache_orders(demand, tasks, 2, KernelRules.preset("7.3"), places)
        made = found.events[(found.events["operation"] != at.FREE)]
        assert sorted(set(made["order"].tolist()), reverse=True) == below
        bits = made["bits"] & pr.GFP_NORETRY
        assert (bits[made["order"] > 0] != 0).all()
        assert (bits[made["order"] == 0] != 0).all() == (kind == "ahead")
        assert found.by_orders["page_cache_split"] == 1
        # eight pages, each in place of the folio in front of it
        singles = made["object"][made["order"] == 0]
        assert len(singles) == 8 and (found.leads[singles] >= 0).all()


def test_filemap_events_tell_the_place_in_a_file(tmp_path: Path) -> None:
    trace = Files("p0:3 p1:4 p2:0/8 a3").trace(tmp_path)
    demand = resolve_demand(trace, small_machine(), ELASTIC)
    file, index = page_cache_places(trace, demand.events, demand.objects)
    assert file.tolist() == [0, 0, 1, -1]
    assert index.tolist()[:3] == [3, 4, 0]


def test_a_recording_is_asked_with_folios() -> None:
    recording = pm.open("cma_area_A1")
    recorded = pm.replay(recording, assumptions=ELASTIC)
    assert "windows" not in recorded.divergence
    small = pm.replay(recording, Policy(page_cache_max_order=0), assumptions=ELASTIC)
    by_order = small.folios.query("`class` == 'file'").set_index("order")["asked"]
    assert by_order.index.tolist() == [0]
    # as many pages as recorded
    own = recorded.folios.query("`class` == 'file'")
    assert by_order[0] == (own["asked"] * 2 ** own["order"]).sum()
    rows = pm.compare(recorded, small).rows.set_index(["metric", "scope"])
    assert rows.loc[("folio_success", "class=file,order=2"), "verdict"] == "unknown"
    assert rows.loc[("thp_fault_alloc", "all"), "verdict"] != "unknown"
    with pytest.raises(PolicyError, match="filemap"):
        pm.replay(recording, Policy(page_cache_max_order=5), assumptions=ELASTIC)
    with pytest.raises(PolicyError, match="page_cache_max_order"):
        pm.replay(recording, Policy(page_cache_max_order=2))
    both = Policy(page_cache_max_order=0, huge_anon_orders=16)
    counts = pm.replay(recording, both, assumptions=ELASTIC).divergence
    assert counts["faults_split"] and counts["page_cache_split"]


def test_uses_of_a_cut_folio_are_left_out() -> None:
    demand, tasks, places = as_demand(stream(2, order=3), random.Random(0))
    use = demand.events[1:2].copy()
    use["operation"], use["object"] = at.USE, 0
    used = replace(demand, events=np.concatenate([demand.events[:2], use, demand.events[2:]]))
    tasks = np.insert(tasks, 2, 1)
    for largest, left in ((2, 0), (3, 1)):
        rules = KernelRules.preset("7.3")
        found = with_page_cache_orders(used, tasks, largest, rules, places)
        assert found.by_orders["uses_left_out"] == 1 - left
        assert (found.events["operation"] == at.USE).sum() == left


def test_what_fails_in_a_replay_becomes_its_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each page were of one file, in the order in which objects were allocated."""

    def one_file(_: object, __: object, objects: np.ndarray) -> Places:
        return np.zeros(len(objects), np.int64), np.arange(len(objects))

    monkeypatch.setattr(replay_module, "page_cache_places", one_file)
    recording, policy = pm.open("highatomic_stock"), Policy(page_cache_max_order=5)
    own = at_recorded_cost(recording.trace, start_snapshots(recording)[1])
    recorded = pm.replay(recording, assumptions=own).folios.query("`class` == 'file'")
    large = pm.replay(recording, policy, assumptions=own)
    found = large.folios.query("`class` == 'file'").set_index("order")
    pages = ((found["asked"] - found["failed"]) * 2 ** found.index.to_numpy()).sum()
    assert pages == (recorded["asked"] - recorded["failed"]).sum()
    assert large.divergence["page_cache_joined"] == found.loc[1:, "asked"].sum() > 100
    assert found.loc[1:, "failed"].sum() > 0
