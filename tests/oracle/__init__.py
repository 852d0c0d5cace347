"""The page allocator once more, slow and plain, written from docs/page_allocator.md alone.

It is the tests' truth: the model's kernels must agree with it list by list and page by page. Read
`allocator.py` first (a request's way), then `literal.py` (what a recording tells), `zone.py`,
`pcp.py`, `buddy.py`, `fallback.py`, `highatomic.py`, `watermark.py`, `kswapd.py`; in files named
`..._6_1.py`, what 6.1 does instead; in `ownership_zone.py` and other files `ownership...`, what
owned pageblocks change.
"""

from tests.oracle.literal import Oracle
from tests.oracle.machine import Migratetype, OracleMachine, OracleZone
from tests.oracle.request import Bits
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
]
