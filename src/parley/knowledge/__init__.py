"""The organization's documents: bases, reading, passages, search.

Nothing is imported here: the child process that reads a file imports ``knowledge.parsing`` and no more.
"""
