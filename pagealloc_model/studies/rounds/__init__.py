"""A recording's demand gone through again and again on less memory, beside huge-page faults."""
