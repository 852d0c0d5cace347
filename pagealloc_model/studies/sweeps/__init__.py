"""Many policies over many recordings, as one table: points, metrics, caches, workers, summaries."""
