"""Reading one file into passages, in a child process with limits and without a network (trust T20).

``python -m parley.knowledge.parsing`` is that child; ``child.read`` starts it.
"""
