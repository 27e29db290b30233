"""T8 through the whole server: what providers hand back of a secret stands nowhere afterwards.

A module of its own: one process serves one guarded Parley at a time.
"""

import json
from pathlib import Path

from parley.testing.provider_proxy import ProviderProxy
from parley.testing.scripted_model import ScriptedModel
from tests.contract.conftest import model, model_port, proxy
from tests.stage import Json, everything
from tests.trust.echo import Echo
from tests.trust.test_injection import ARRIVALS, DEMANDS, guarded_world, obey

__all__ = ["model", "model_port", "proxy"]


async def test_t8_no_secret_stands_in_the_store_the_streams_or_the_prompts(
    store_url: str, tmp_path: Path, proxy: ProviderProxy, model: ScriptedModel
) -> None:
    async with guarded_world(store_url, tmp_path, proxy, model) as world:
        # Providers hand the secrets back: the echo of the canary sweep, now through the whole server.
        proxy.answer("*", Echo(200))
        told = list[Json]()
        for demand in (one for one in DEMANDS if one["expect"] in ("own_host", "asks")):
            told += (await obey(world, ARRIVALS[0], demand)).events
        stored = "\n".join((await world.stage.parley.store.read(everything)).values())
        assert world.private in stored
        for where in (stored, json.dumps(told), json.dumps(await world.stage.sent())):
            assert world.canaries.found_in(where) == []
