"""Two sets of hosts: what each does, ranges per host, and whether the sides differ."""
