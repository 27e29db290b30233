"""What the model may call."""

from parley.tools.context import Intents, Taint, ToolContext, Workshop
from parley.tools.profiles import ASSISTANT, PROFILES, Profile
from parley.tools.toolbox import Toolbox

__all__ = ["ASSISTANT", "PROFILES", "Intents", "Profile", "Taint", "ToolContext", "Toolbox", "Workshop"]
