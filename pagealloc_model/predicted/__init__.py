"""A recording's demand taken through the model under a policy."""

from pagealloc_model.predicted.checkpoints import Checkpoints

__all__ = ["Checkpoints"]
