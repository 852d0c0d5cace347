"""One study each: its loads, its tables, its figures; scripts on public names."""
