"""Faults in how interrupts find lists locked, which scenarios of interrupts must tell (S4.10)."""

from __future__ import annotations

from tests.allocator.fault import Fault

FAULTS_INTERRUPTS = (
    Fault(
        "an interrupt's request finds no list locked",
        "pcp",
        "if is_locked_by_holder(m, ac.cpu, pcp):",
        "if is_locked_by_holder(m, ac.cpu, -1):",
        scenarios=("interrupts",),
    ),
    Fault(
        "an interrupt's free finds no list locked",
        "page_free",
        "elif not in_batch and is_locked_by_holder(m, cpu, pcp_at(m, zone, cpu)):",
        "elif False:",
        scenarios=("interrupts",),
    ),
    Fault(
        "the lists of all zones are locked",
        "pcp",
        "return m.st[words + at.CPU_BATCH_SET] == pcp or",
        "return m.st[words + at.CPU_BATCH_SET] != 0 or",
        scenarios=("interrupts",),
    ),
    Fault(
        "an interrupt ends the batch",
        "events",
        "elif not bits & at.INTERRUPTS_HOLDER:",
        "else:",
        scenarios=("interrupts",),
    ),
    Fault(
        "a refill is over before its interrupts come",
        "page_alloc",
        "        hold_refilled(m, ac.cpu, pcp)\n",
        "",
        scenarios=("interrupts",),
    ),
    Fault(
        "a list that has pages is locked for interrupts, too",
        "page_alloc",
        "        hold_refilled(m, ac.cpu, pcp)\n",
        "    hold_refilled(m, ac.cpu, pcp)\n",
        scenarios=("interrupts",),
    ),
    Fault(
        "the preferred zone is refilled, whatever its watermark",
        "page_alloc",
        """            skipped = True
        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):
            return zone,""",
        """            skipped = True
        else:
            return zone,""",
        scenarios=("interrupts",),
    ),
    Fault(
        "a busy node's list is refilled",
        "page_alloc",
        """            skipped = True
        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):
            return zone,""",
        """            pass
        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):
            return zone,""",
        scenarios=("interrupts",),
    ),
    Fault(
        "a refill for another node's zone fragments nothing",
        "page_alloc",
        """            flags &= ~at.ALLOC_NOFRAGMENT
            position = ac.zonelist
        elif skips_busy and is_busy(m, zone):
            skipped = True
        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):
            return zone,""",
        """            return -1, position, flags, skips_busy, skipped
        elif skips_busy and is_busy(m, zone):
            skipped = True
        elif zone_may_serve(m, zone, ac.order, ac.highest_type, flags):
            return zone,""",
        scenarios=("interrupts",),
    ),
    Fault(
        "what a request would refill is owned like other pages",
        "page_alloc",
        "if index < 0 or m.st[at.OWNERSHIP]:",
        "if index < 0:",
        scenarios=("interrupts",),
    ),
    Fault(
        "a drain is over before its interrupts come",
        "pcp",
        "m.st[words + at.CPU_LOCKED_SET] = abs(m.st[words + at.CPU_LOCKED_SET])",
        "m.st[words + at.CPU_LOCKED_SET] = 0",
        scenarios=("interrupts",),
    ),
    Fault(
        "an interrupt's drain lets go of the list that is locked",
        "pcp",
        "    if m.st[word] <= 0:\n        m.st[word] = -pcp\n",
        "    m.st[word] = -pcp\n",
        scenarios=("interrupts",),
    ),
    Fault(
        "a drain is remembered beyond the next event",
        "pcp",
        """    m.st[words + at.CPU_BATCH_SET] = 0
    m.st[words + at.CPU_LOCKED_SET] = 0
""",
        """    m.st[words + at.CPU_BATCH_SET] = 0
    m.st[words + at.CPU_LOCKED_SET] = min(m.st[words + at.CPU_LOCKED_SET], 0)
""",
        scenarios=("interrupts",),
    ),
    Fault(
        "a folio batch goes on under the lock of a drain before it",
        "events",
        "            m.st[cpu_at(m, cpu) + at.CPU_LOCKED_SET] = 0\n",
        "            pass\n",
        scenarios=("interrupts",),
    ),
    Fault(
        "a folio batch goes on after an interrupt into its last drain",
        "pcp",
        """    m.st[words + at.CPU_BATCH_SET] = 0
    m.st[words + at.CPU_LOCKED_SET] = abs(""",
        """    m.st[words + at.CPU_LOCKED_SET] = abs(""",
        scenarios=("interrupts",),
    ),
)
