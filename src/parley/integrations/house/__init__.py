"""House integrations: folders of the operator's, each with a manifest and functions, beside the catalog's."""

from parley.integrations.house.folders import Report, UnfitFolder
from parley.integrations.house.sample import make_sample
from parley.integrations.house.shelf import NO_HOUSE, TAKEN, House, look, open_house, subfolders

__all__ = [
    "NO_HOUSE",
    "TAKEN",
    "House",
    "Report",
    "UnfitFolder",
    "look",
    "make_sample",
    "open_house",
    "subfolders",
]
