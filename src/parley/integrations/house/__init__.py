"""House integrations: folders of the operator's, each with a manifest and functions, beside the catalog's."""

from parley.integrations.house.folders import UnfitFolder
from parley.integrations.house.sample import make_sample
from parley.integrations.house.shelf import NO_HOUSE, TAKEN, House, Looked, look, open_house, subfolders

__all__ = ["NO_HOUSE", "TAKEN", "House", "Looked", "UnfitFolder", "look", "make_sample", "open_house", "subfolders"]
