"""Many policies over many recordings, as one table: points, metrics, caches, workers, summaries."""

from pagealloc_model.sweeps.design import one_at_a_time, space_filling

__all__ = ["one_at_a_time", "space_filling"]
