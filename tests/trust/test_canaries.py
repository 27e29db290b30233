"""T8: a secret in every field of every credential; providers that echo it; and nowhere anybody could read it.

By default a slice of the catalog; ``make canaries`` drives every action of it.
"""

import logging
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from parley.egress import Egress
from parley.testing.provider_proxy import ProviderProxy
from tests.contract.conftest import proxied
from tests.trust.drive import CATALOG, Heard, canary_credential, outcome, sample_arguments, spread_over, ways
from tests.trust.echo import Echo

FULL = os.environ.get("PARLEY_CANARIES") == "all"
# One of each way a secret travels: query, path, header, Basic, body, signature, document, driver, base URL.
SLICE = [
    "aws", "coinbase", "freshdesk", "github", "google_cloud", "grafana", "hubspot", "hunter", "jira", "kalshi",
    "linear", "mailchimp", "mailgun", "mixpanel", "mongodb_atlas", "mysql", "nasdaq", "postgresql", "posthog",
    "reddit", "segment", "semrush", "slack", "stripe", "telegram", "twilio", "woocommerce", "youtube", "zerobounce",
]  # fmt: skip
NAMES = [one.name for one in CATALOG.integrations()] if FULL else SLICE
ACTIONS_OF_SLICE = 2
STATUSES = (200, 401, 500)
SECONDS = 6.0 if FULL else 3.0
# These wait and try again after a failure.
PATIENT = {"nasdaq": (200, 401), "mongodb_atlas": (200,), "mysql": (200,), "postgresql": (200,)}
# Their drivers dial in native code and retry for longer than a test may wait.
NOT_DIALLED = {"snowflake", "microsoft_sql_server"}


@pytest.fixture(scope="module")
async def proxy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProviderProxy]:
    async with proxied(tmp_path_factory.mktemp("proxy")) as running:
        with Egress(("127.0.0.1",), os.environ).install():
            yield running


@pytest.fixture
def heard() -> Iterator[Heard]:
    """All logs at the level at which most is said."""
    handler, root = Heard(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.timeout(600 if FULL else 60)
@pytest.mark.parametrize("name", NAMES)
async def test_t8_no_secret_comes_back_from_an_action_nor_is_it_logged(
    name: str, proxy: ProviderProxy, heard: Heard
) -> None:
    integration = CATALOG.find(name)
    assert integration is not None
    actions = [action for action in integration.actions if not action.switched_off]
    chosen = actions if FULL else list(spread_over(actions, ACTIONS_OF_SLICE))
    for schema in ways(integration) or [None]:
        secret, canaries = canary_credential(integration, schema)
        proxy.asked.clear()
        for status in PATIENT.get(name, STATUSES):
            proxy.answer("*", Echo(status))
            for action in chosen if name not in NOT_DIALLED else []:
                for whole_call in (True, False) if FULL else (True,):
                    arguments = sample_arguments(action, whole=whole_call)
                    seen = await outcome(
                        integration, action, arguments, secret, seconds=1.0 if name in PATIENT else SECONDS
                    )
                    assert canaries.found_in(seen) == [], f"{name}.{action.name} after {status}"
                    assert "held back" not in seen, f"{name}.{action.name}: the pin refuses an ordinary call: {seen}"
        assert canaries.found_in("\n".join(heard.lines)) == []
