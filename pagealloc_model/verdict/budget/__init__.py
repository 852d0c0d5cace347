"""The error budget: what remains of each error when the recording's own truth is imposed."""
