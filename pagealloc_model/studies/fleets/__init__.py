"""Two sets of hosts, recorded or made up, set side by side."""

from pagealloc_model.studies.fleets.fleet import FleetResult, fleet
from pagealloc_model.studies.fleets.synthetic_hosts import SyntheticHosts

__all__ = ["FleetResult", "SyntheticHosts", "fleet"]
