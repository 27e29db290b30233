"""How well and how fast documents are found: ``python -m bench.knowledge``."""
