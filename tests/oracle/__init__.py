"""The page allocator once more, slow and plain, written from docs/page_allocator.md alone.

It is the tests' truth: the model's kernels must agree with it list by list and page by page. Files
are named as the kernel's and the model's are. Read `page_alloc.py` first (what a request meets),
then `literal.py` (its way, and what a recording tells), `zone.py`, whose parts are `pcp.py`,
`buddy.py`, `fallback.py` and `watermark.py`; then `elastic.py`, for memory that reclaim and
compaction change. All options are in `rules.py`. Scenarios are drawn in `random_scenarios.py` and
`elastic_scenarios.py`.
"""

from tests.oracle.literal import Oracle
from tests.oracle.machine import Migratetype, OracleMachine, OracleZone
from tests.oracle.request import Bits, Request
from tests.oracle.rules import RULES, OracleAssumptions, OraclePolicy, OracleRules

__all__ = [
    "RULES",
    "Bits",
    "Migratetype",
    "Oracle",
    "OracleAssumptions",
    "OracleMachine",
    "OraclePolicy",
    "OracleRules",
    "OracleZone",
    "Request",
]
