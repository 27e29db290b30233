"""The bench beside peers, small: it kills and measures what it says it does.

LangChain and pydantic-ai are in it where ``make bench-peers`` has installed them.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from bench.peers import peer
from bench.peers.__main__ import NAMES, PARLEY, measure_bytes, measure_crowds
from bench.peers.crashes import ACTING, ENTRANTS, TURNS, Entrant, Outcome, kill
from bench.report import Report
from bench.turns import Ground, lay_ground
from tests.conftest import POSTGRES

pytestmark = pytest.mark.skipif(POSTGRES is None, reason="no PostgreSQL answers")
PEERS = (peer.LANGCHAIN, peer.PYDANTIC_AI)


def title(entrant: Entrant) -> str:
    return entrant.title


def needs(*peers: peer.Peer | None) -> None:
    for one in peers:
        if one is not None and not one.is_installed:
            pytest.skip(f"{one.title} is not installed: make bench-peers")


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    async with AsyncExitStack() as stack:
        yield await lay_ground(stack, tmp_path)


@pytest.mark.parametrize("entrant", ENTRANTS, ids=title)
async def test_killed_in_an_action_only_parley_ends_alone_with_one_effect_a_turn(
    ground: Ground, entrant: Entrant
) -> None:
    needs(entrant.foreign)
    found = await kill(ground, entrant, ACTING)
    if entrant.foreign is None:
        assert found == Outcome(TURNS, TURNS, TURNS, TURNS)
    else:
        assert found == Outcome(0, TURNS, TURNS, 2 * TURNS)


async def test_the_same_turns_of_everybody_are_measured_and_what_their_stores_grow_by(ground: Ground) -> None:
    needs(*PEERS)
    report, crowd, turns = Report(), 2, 20
    await measure_crowds(report, ground, (crowd,), count=1)
    await measure_bytes(report, ground, turns=turns)
    slices = cast("dict[str, list[dict[str, Any]]]", report.figures[f"crowd_{crowd}"])
    assert set(slices) == set(NAMES)
    for (measured,) in slices.values():
        assert measured["turns"] == crowd
        figures = ("cpu_ms_per_turn", "store_cpu_ms_per_turn", "wall_p50", "wall_p99")
        assert [name for name in (*figures, "first_text_p50", "first_text_p99") if not measured[name] > 0] == []
    grown = cast("dict[str, float]", report.figures["store_bytes_per_turn"])
    assert set(grown) == set(NAMES)
    assert grown[PARLEY] > 0
