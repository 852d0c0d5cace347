"""The model beside the kernel's own code on recordings: same results or not, and the speed of both.

    python benchmarks/kernel_code.py /usr/src/linux-source-6.12.tar.xz kbuild xfree highatomic_stock

The model replays under the tree's rules here, so that both should do the same. Speed is events per
second of the best of three rounds, the two taking turns, without preparation and start-up.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from pagealloc_model.notebooks.studies.others.replay_agreement import agreement_text

from pagealloc_model.allocator import layout as at
from pagealloc_model.kernel_source.build import KernelBuild
from pagealloc_model.numbers.result_tables import error_table
from pagealloc_model.numbers.validation import validate
from pagealloc_model.policy.policy import Assumptions
from pagealloc_model.predicted.carrier import Carrier, ModelCarrier
from pagealloc_model.predicted.prepared import prepare
from pagealloc_model.predicted.replay import replay
from pagealloc_model.recording.recorded_machine import recorded_policy
from pagealloc_model.recording.recording import Recording, open_recording

ROUNDS = 3


def main() -> None:
    """Compare and time every recording named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", help="kernel tree or tarball")
    parser.add_argument("recordings", nargs="+")
    options = parser.parse_args()
    build = KernelBuild(options.source)
    for name in options.recordings:
        recording = open_recording(name)
        print(f"{name}, rules {build.rules.name}, code {build.name}")
        plain = Assumptions(reclaim="literal", plain_demand=True)
        model = replay(recording, rules=build.rules, assumptions=plain)
        print(f"  {agreement_text(model, replay(recording, build, rules=build.rules))}")
        print(f"  {speeds(recording, build)}\n")
        literal = Assumptions(reclaim="literal")
        errors = validate(recording, rules=build.rules, assumptions=literal).errors
        print(
            error_table(
                errors,
                validate(recording, predicted=replay(recording, build, rules=build.rules)).errors,
            )
        )


def speeds(recording: Recording, build: KernelBuild) -> str:
    """Events per second of the model and of the compiled kernel."""
    literal = Assumptions(reclaim="literal")
    prepared = prepare(recording, build.rules, literal, 0)
    policy = recorded_policy(recording)
    demand = prepared.demand
    best = {"model": 0.0, "kernel": 0.0}
    for _ in range(ROUNDS):
        for name in best:
            state = prepared.state(build.rules, policy, literal, 0)
            carrier = ModelCarrier(state) if name == "model" else build.carrier(state)
            best[name] = max(best[name], _rate(carrier, demand.events, demand.starting_places()))
            carrier.close()
    return (
        f"model {best['model'] / 1e6:.1f} million events/s, kernel {best['kernel'] / 1e6:.1f}, "
        f"ratio {best['kernel'] / best['model']:.2f}"
    )


def _rate(carrier: Carrier, events: np.ndarray, places: np.ndarray) -> float:
    position = 0
    began = time.perf_counter()
    while position < len(events):
        position = carrier.advance(events, places, position, len(events), -1)
        carrier.state.st[at.LOG_ROWS] = 0
    return len(events) / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
