"""A setting that cannot be used is named, with what to write instead (README decision 10)."""

import pytest

from parley.base.settings import SettingsError, read_settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PARLEY_PORT", "eighty"),
        ("PARLEY_PORT", "nan"),
        ("PARLEY_PORT", "inf"),
        ("PARLEY_PORT", "-1"),
        ("PARLEY_LEASE_SECONDS", "nan"),
        ("PARLEY_TURNS_PER_ORGANIZATION", "0"),
        ("PARLEY_APPROVAL_POLICY", "none"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings({name: value})


def test_a_lease_lasts_fifteen_seconds_and_is_renewed_every_three() -> None:
    chosen = read_settings({})
    assert (chosen.lease_seconds, chosen.heartbeat_seconds) == (15.0, 3.0)
