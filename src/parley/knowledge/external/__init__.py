"""Stores that an organization fills itself and Parley only searches (decision 0037)."""
