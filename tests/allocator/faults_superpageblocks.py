"""Faults in superpageblocks, which scenarios that have them must tell."""

from __future__ import annotations

from tests.allocator.fault import Fault


def _fault(name: str, module: str, right: str, wrong: str) -> Fault:
    return Fault(name, module, right, wrong, scenarios=("superpageblocks",))


FAULTS_SUPERPAGEBLOCKS = (
    _fault(
        "the reserve does not taint",
        "superpageblocks",
        "return migratetype in (at.UNMOVABLE, at.RECLAIMABLE, at.HIGHATOMIC)",
        "return migratetype in (at.UNMOVABLE, at.RECLAIMABLE)",
    ),
    _fault(
        "a tainted head goes before the clean part",
        "superpageblocks",
        "following = -1 if tail else boundary",
        "following = -1 if tail else m.st[lst + at.HEAD]",
    ),
    _fault(
        "a clean tail goes behind the tainted part",
        "superpageblocks",
        "following = boundary if tail else m.st[lst + at.HEAD]",
        "following = -1 if tail else m.st[lst + at.HEAD]",
    ),
    _fault(
        "the tainted part keeps a buddy that left",
        "superpageblocks",
        '        m.st[first] = m.pages[pfn]["next"]\n',
        "        m.st[first] = -1\n",
    ),
    _fault(
        "a superpageblock never becomes clean again",
        "superpageblocks",
        "m.st[count] == (1 if now else 0)",
        "m.st[count] == (1 if now else -1)",
    ),
    _fault(
        "moved buddies go to heads",
        "superpageblocks",
        "add_to_part(m, zone, pfn, buddy_order, migratetype, True)",
        "add_to_part(m, zone, pfn, buddy_order, migratetype, False)",
    ),
    _fault(
        "movable pages take tainted ones first",
        "superpageblocks",
        "for part in range(TAINTED if taints(migratetype) else CLEAN, TAINTED + 1):",
        "for part in range(TAINTED, -1 if not taints(migratetype) else CLEAN, -1):",
    ),
    _fault(
        "parts are not counted",
        "superpageblocks",
        "    m.st[at.LIST_PROBES] += 1\n",
        "    pass\n",
    ),
    _fault(
        "movable requests fall back by class",
        "superpageblocks",
        "return m.st[at.SUPERPAGEBLOCKS] != 0 and migratetype != at.MOVABLE",
        "return m.st[at.SUPERPAGEBLOCKS] != 0",
    ),
    _fault(
        "no fallback in clean superpageblocks",
        "fallback",
        "for part in (TAINTED, CLEAN):\n        least",
        "for part in (TAINTED,):\n        least",
    ),
    _fault(
        "few superpageblocks are packed too",
        "superpageblocks",
        "return last - first + 1 > PACKED_ABOVE",
        "return True",
    ),
    _fault(
        "many superpageblocks are not packed",
        "superpageblocks",
        "return last - first + 1 > PACKED_ABOVE",
        "return False",
    ),
    _fault(
        "blocks in use are not claimed in tainted ones",
        "fallback",
        "if pfn < 0 and part == TAINTED and zone_holds_block(m, zone, block):",
        "if False:",
    ),
    _fault(
        "blocks in use are claimed in clean ones",
        "fallback",
        "if pfn < 0 and part == TAINTED and zone_holds_block(m, zone, block):",
        "if pfn < 0 and part <= TAINTED and zone_holds_block(m, zone, block):",
    ),
    _fault(
        "blocks that the zone's edge cuts are claimed in tainted ones",
        "fallback",
        "if pfn < 0 and part == TAINTED and zone_holds_block(m, zone, block):",
        "if pfn < 0 and part == TAINTED:",
    ),
    Fault(
        "compaction turns the lists around",
        "compaction_scan",
        "if last < 0 or m.st[at.SUPERPAGEBLOCKS]:",
        "if last < 0:",
        scenarios=("superpageblocks_elastic",),
    ),
)
