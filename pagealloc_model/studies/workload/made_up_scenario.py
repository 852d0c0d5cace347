"""A scenario by name, on a machine by size."""

from __future__ import annotations

from pagealloc_model.base.errors import UsageError
from pagealloc_model.policy.kernel_rules import KernelRules, preset_names
from pagealloc_model.recording.made_up_machine import made_up_machine
from pagealloc_model.studies.workload.scenario import Scenario
from pagealloc_model.studies.workload.scenarios import SCENARIOS


def made_up_scenario(
    name: str,
    *,
    gib: float,
    nr_cpus: int,
    nodes: int = 1,
    rules: KernelRules | str | None = None,
    seed: int = 0,
    **numbers: int | bool,
) -> Scenario:
    """Demand of a known shape.

    Args:
        name: "exit", "boot", "purgers" or "churn".
        gib: memory of the machine.
        nr_cpus: its CPUs.
        nodes: its NUMA nodes.
        rules: kernel generation that computes its watermarks; None for the newest known.
        seed: of random choices.
        **numbers: of the scenario, see `workload.scenarios`.

    Raises:
        UsageError: no such scenario or number, or a machine too small.
        PolicyError: no preset of that name.
    """
    if name not in SCENARIOS:
        raise UsageError(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    chosen = rules if isinstance(rules, KernelRules) else None
    chosen = chosen or KernelRules.preset(str(rules or preset_names()[-1]))
    machine = made_up_machine(gib, nr_cpus, chosen, nodes=nodes)
    try:
        return SCENARIOS[name](machine, seed=seed, **numbers)
    except TypeError:
        known = SCENARIOS[name].__kwdefaults__ or {}
        raise UsageError(
            f"scenario {name!r} takes {', '.join(known)}, not {', '.join(numbers)}"
        ) from None
