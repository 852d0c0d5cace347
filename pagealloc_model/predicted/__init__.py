"""A recording's demand taken through the model under a policy."""

__all__ = ["Checkpoints"]


def __getattr__(name: str) -> object:
    """`Checkpoints`, for which alone the replay and pandas are imported."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pagealloc_model.predicted.checkpoints import Checkpoints

    return Checkpoints
