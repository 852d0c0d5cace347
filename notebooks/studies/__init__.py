"""One study each: its loads, its tables, its figures."""
