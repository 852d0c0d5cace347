"""Loads that nobody recorded: made-up ones, and recorded ones on another machine."""

from pagealloc_model.recording.machine import Machine
from pagealloc_model.studies.rounds.huge_faults import HugeFaults
from pagealloc_model.studies.rounds.repeated import RepeatedRounds, repeated_rounds
from pagealloc_model.studies.workload.event_stream import EventStream
from pagealloc_model.studies.workload.made_up_scenario import made_up_scenario
from pagealloc_model.studies.workload.run import ScenarioRun, run_scenario
from pagealloc_model.studies.workload.run_stream import StreamRun, run_stream
from pagealloc_model.studies.workload.scale_up import judged_scale_up, scaled_stream, scaled_up
from pagealloc_model.studies.workload.scenario import Scenario

__all__ = [
    "EventStream",
    "HugeFaults",
    "Machine",
    "RepeatedRounds",
    "Scenario",
    "ScenarioRun",
    "StreamRun",
    "judged_scale_up",
    "made_up_scenario",
    "repeated_rounds",
    "run_scenario",
    "run_stream",
    "scaled_stream",
    "scaled_up",
]
