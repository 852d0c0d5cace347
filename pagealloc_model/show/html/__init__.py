"""What results show of themselves in a notebook: compact HTML that also reads in a static page."""
