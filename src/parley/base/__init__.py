"""What every package may import: refusals, the clock, ids, settings, logging. Frozen at five files."""
