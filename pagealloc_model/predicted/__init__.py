"""A recording's demand taken through the model under a policy."""
