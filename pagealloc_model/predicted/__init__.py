"""A recording's demand taken through the model under a policy."""

from pagealloc_model.predicted.run import Checkpoints

__all__ = ["Checkpoints"]
