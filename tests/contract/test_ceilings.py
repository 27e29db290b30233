"""The operator's ceiling on a turn's time (issue 5, sentence 7)."""

from uuid import uuid4

import pytest

from tests.stage import Stage, says

CEILING = 1.5


@pytest.fixture(scope="module")
def settings_extra() -> dict[str, str]:
    """A server whose turns may take a moment only."""
    return {"PARLEY_MAX_TURN_SECONDS": str(CEILING)}


async def test_a_turn_over_the_operators_ceiling_fails_with_its_words_kept_and_the_chat_goes_on(stage: Stage) -> None:
    barrier = uuid4().hex
    turn = await stage.turn(says("Begun", " and never finished", barrier=barrier, barrier_after=2))
    assert turn.types[-2:] == ["error", "done"]
    assert f"{CEILING:g} seconds, the operator's limit" in turn.data("error")["message"]
    status = await stage.settled(turn.chat_id)
    assert (status["run_status"]["status"], status["run_status"]["reason"]) == ("failed", "time_limit")
    said = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body["messages"][-1]
    assert said["content"].startswith("Begun")
    await stage.model.release(barrier)
    again = await stage.turn(says("Quick."), chat_id=turn.chat_id)
    assert again.data("done")["response"] == "Quick."
