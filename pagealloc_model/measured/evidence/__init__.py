"""What a recording shows of the rules its kernel follows: distributions and stable trees backport.

Two kinds of sources are kept apart. *Settings* exist before the first event or do not depend on
what the allocator did: the release, sysctls, fields of the zoneinfo read before the start, the
flag names in the event format. They may change the rules a prediction runs under. *Answers* are
what the allocator did: refills, drains, fallbacks, kprobes, later snapshots. A free-running
prediction must not depend on them, so they only check the rules, and a contradiction is printed;
`rules="evidence"` uses them all the same, and says so.
"""
