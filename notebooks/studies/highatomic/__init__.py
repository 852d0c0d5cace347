"""The gate on the highatomic reserve."""
