"""Faults in what a recording imposes, which scenarios of imposed truth must tell."""

from __future__ import annotations

from tests.allocator.fault import Fault

SERVES = "\n            m.places[number] = allocate_object("
"""What follows as the literal event loop serves an allocation."""

FAULTS_IMPOSED = (
    Fault(
        "a recorded failure looks at no zone",
        "page_alloc",
        "        zone_may_serve(m, m.st[position], ac.order, ac.highest_type, flags)\n",
        "        pass\n",
        scenarios=("imposed",),
    ),
    Fault(
        "a recorded failure lets kswapd sleep",
        "page_alloc",
        "        position += 1\n    wake_all_kswapds(m, ac, flags)\n",
        "        position += 1\n",
        scenarios=("imposed",),
    ),
    Fault(
        "every recorded failure made room",
        "page_alloc",
        "    if ac.bits & at.REQUEST_RECLAIMED:\n        unreserve",
        "    if ac.bits >= 0:\n        unreserve",
        scenarios=("imposed",),
    ),
    Fault(
        "a recorded failure gives no block back",
        "page_alloc",
        (
            "    if ac.bits & at.REQUEST_RECLAIMED:\n"
            "        unreserve_highatomic_pageblock(m, ac, False)\n"
        ),
        "    if ac.bits & at.REQUEST_RECLAIMED:\n",
        scenarios=("imposed",),
    ),
    Fault(
        "an imposed zone serves only if no other does",
        "page_alloc",
        "return not m.st[at.ONLY_ZONE] or m.st[at.ONLY_ZONE] == zone + 1",
        "return True",
        scenarios=("imposed",),
    ),
    Fault(
        "an imposed zone is imposed on what follows",
        "events",
        "        m.st[at.ONLY_ZONE] = 0\n",
        "        pass\n",
        scenarios=("imposed",),
    ),
    Fault(
        "a request is forced where its zonelist says, whatever is imposed",
        "page_alloc",
        "        zone = m.st[at.ONLY_ZONE] - 1\n",
        "        pass\n",
        scenarios=("imposed",),
    ),
    Fault(
        "an imposed boost adds to the zone's own",
        "events",
        "m.st[zone_at(zone) + at.ZONE_BOOST] = offset",
        "m.st[zone_at(zone) + at.ZONE_BOOST] += offset",
        scenarios=("imposed",),
    ),
    Fault(
        "an imposed drain is one of the CPU that drains",
        "events",
        "drain_pages_zone(m, zone, offset)",
        "drain_pages_zone(m, zone, m.st[at.EVENT_CPU])",
        scenarios=("imposed",),
    ),
    Fault(
        "where drains are recorded the model drains too",
        "pcp",
        "if m.st[at.DRAINS_RECORDED]:",
        "if m.st[at.DRAINS_RECORDED] < 0:",
        scenarios=("imposed",),
    ),
    Fault(
        "memory that comes is first on its list",
        "buddy",
        "__free_one_page(m, zone, first, piece, migratetype, True)",
        "__free_one_page(m, zone, first, piece, migratetype, False)",
        scenarios=("imposed",),
    ),
    Fault(
        "memory that comes is not managed",
        "buddy",
        "    m.st[zone_at(zone) + at.ZONE_MANAGED] += 1 << order\n",
        "    pass\n",
        scenarios=("imposed",),
    ),
    Fault(
        "a recorded tick leaves the lists",
        "events",
        "    elif operation == at.TICK:\n        refresh_cpu_vm_stats(m, cpu)\n",
        "    elif operation == at.TICK:\n        pass\n",
        scenarios=("imposed",),
    ),
    Fault(
        "hidden allocations count as others",
        "events",
        f"m.st[at.COUNT_HIDDEN if operation == at.HIDDEN_ALLOC else at.COUNT_ALLOC] += 1{SERVES}",
        f"m.st[at.COUNT_ALLOC] += 1{SERVES}",
        scenarios=("imposed",),
    ),
    Fault(
        "frees of nothing are not counted",
        "events",
        "                m.st[at.COUNT_ORPHAN_FREE] += 1\n",
        "                pass\n",
        scenarios=("imposed",),
    ),
    Fault(
        "what a task does goes on with the folio batch before it",
        "events",
        "            let_go_of_lists(m, cpu)\n",
        "            pass\n",
        scenarios=("imposed",),
    ),
    Fault(
        "a piece as large as a pageblock is the last of its list",
        "events",
        "    current = largest + 1\n",
        "    current = max(largest, order) + 1\n",
        scenarios=("imposed",),
    ),
    Fault(
        "a boost keeps free pages from compaction",
        "compaction_scan",
        "mark = m.st[zone_at(zone) + at.ZONE_MIN] + (1 << order)\n",
        (
            "mark = m.st[zone_at(zone) + at.ZONE_MIN] + (1 << order)\n"
            "        mark += m.st[zone_at(zone) + at.ZONE_BOOST]\n"
        ),
        scenarios=("told_elastic",),
    ),
)
