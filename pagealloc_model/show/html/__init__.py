"""Results as they show themselves in a notebook: compact HTML that also reads in a static page."""
