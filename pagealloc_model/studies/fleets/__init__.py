"""Two sets of hosts, recorded or made up, set side by side."""

from pagealloc_model.studies.fleets.fleet import fleet
from pagealloc_model.studies.fleets.results import FleetResult
from pagealloc_model.studies.fleets.synthetic_hosts import SyntheticHosts

__all__ = ["FleetResult", "SyntheticHosts", "fleet"]
