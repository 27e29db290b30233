"""What a run is given: its model, metered and with a fall-back, and its tools."""

from parley.equipment.equip import Equipment
from parley.equipment.llms import LlmChoice, Llms

__all__ = ["Equipment", "LlmChoice", "Llms"]
