"""Memory pressure: kswapd, direct reclaim, compaction, kcompactd."""
