"""Pictures drawn from names."""

import xml.etree.ElementTree as ET

import pytest

from parley.integrations import Catalog, monogram


@pytest.mark.parametrize(
    ("display_name", "initials"),
    [("Google Sheets", "GS"), ("GitHub", "GH"), ("slack", "S"), ("Cal.com", "CC"), ("X & <Y>", "XY"), ("…", "…")],
)
def test_initials_stand_in_the_middle(display_name: str, initials: str) -> None:
    picture = ET.fromstring(monogram("name", display_name))
    assert [element.text for element in picture.iter() if element.tag.endswith("text")] == [initials]
    assert [element.text for element in picture.iter() if element.tag.endswith("title")] == [display_name]


def test_a_picture_depends_on_its_name_alone_and_loads_nothing(catalog: Catalog) -> None:
    for summary in catalog.summaries():
        picture = monogram(summary.name, summary.display_name)
        assert picture == monogram(summary.name, summary.display_name)
        assert picture.count("http") == 1  # the namespace
    assert monogram("a", "Same") != monogram("b", "Same")
