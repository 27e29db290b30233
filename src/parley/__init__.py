"""Parley: a self-hosted assistant that acts on a team's own tools."""
