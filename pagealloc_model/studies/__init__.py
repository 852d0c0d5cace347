"""Many replays: made-up machines, sweeps, fleets."""
