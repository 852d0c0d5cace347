"""How right a prediction is, and how two policies differ."""
