"""Where a request came from is what the network says, unless the operator named a proxy (PARLEY_TRUSTED_PROXIES)."""

import aiohttp
import pytest

from tests.contract.conftest import House

LIMIT = 3


@pytest.fixture(scope="module")
def settings_extra() -> dict[str, str]:
    return {"PARLEY_REQUESTS_PER_ADDRESS": str(LIMIT)}


async def test_a_forwarded_address_is_not_believed_from_whoever_says_it(house: House) -> None:
    statuses: list[int] = []
    async with aiohttp.ClientSession() as session:
        for number in range(LIMIT + 1):
            headers = {"X-Forwarded-For": f"9.9.9.{number}", "X-Real-IP": "9.9.8.1", "Forwarded": "for=9.9.7.1"}
            async with session.get(f"{house.base_url}/nowhere", headers=headers) as response:
                statuses.append(response.status)
    assert statuses == [404] * LIMIT + [429]
