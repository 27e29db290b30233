"""Two things at once on one question: one winner, one consistent end.

``PARLEY_TRIALS`` says how many trials; ``make crash`` plays two hundred of each.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable

from parley.chats.connect import integration_connected
from parley.storage.acting import acting_for
from parley.testing.scripted_wire import ScriptedReply
from tests.stage import Answer, Stage, Turn, calls, says

TRIALS = int(os.environ.get("PARLEY_TRIALS", "20"))
AT_ONCE = 25
ASK = calls("ask_user_yes_no", {"message": "Go on?"})
CONNECT = calls(
    "request_credential",
    {
        "integration_name": "github",
        "integration_display_name": "GitHub",
        "auth_options": [{"auth_type": "bearer_token", "display_name": "Token"}],
    },
)

type Trial = Callable[[Turn], Awaitable[None]]


async def run_trials(stage: Stage, ask: ScriptedReply, trial: Trial) -> None:
    """Pause many chats and play the race on each."""
    await stage.model.script(stage.model_key, ask, says("On."), by_step=True)
    gate = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with gate:
            await trial(await stage.follow(await stage.start()))

    async with asyncio.TaskGroup() as group:
        for _ in range(TRIALS):
            group.create_task(one())


async def at_once(*moves: Callable[[], Awaitable[Answer]]) -> list[Answer]:
    """Make every move at nearly the same moment, in a random order; their answers in the given order."""
    answers: dict[int, Answer] = {}

    async def make(number: int) -> None:
        await asyncio.sleep(random.random() * 0.004)
        answers[number] = await moves[number]()

    async with asyncio.TaskGroup() as group:
        for number in random.sample(range(len(moves)), len(moves)):
            group.create_task(make(number))
    return [answers[number] for number in range(len(moves))]


async def test_of_two_answers_one_wins(stage: Stage) -> None:
    async def trial(turn: Turn) -> None:
        yes, no = {"kind": "yes_no", "answer": True}, {"kind": "yes_no", "answer": False}
        answers = await at_once(lambda: stage.resume(turn, yes), lambda: stage.resume(turn, no))
        assert sorted(answer.status for answer in answers) == [200, 410]
        winner = next(number for number, answer in enumerate(answers) if answer.status == 200)
        after = await stage.follow(answers[winner].body)
        assert after.data("tool_result")["output"]["answer"] is (winner == 0)

    await run_trials(stage, ASK, trial)


async def test_an_answer_and_a_cancel_end_in_one_of_two_ways(stage: Stage) -> None:
    async def trial(turn: Turn) -> None:
        answered, cancelled = await at_once(
            lambda: stage.resume(turn, {"kind": "yes_no", "answer": True}),
            lambda: stage.client.post(f"/assistant/chat/{turn.chat_id}/cancel"),
        )
        status = await stage.settled(turn.chat_id)
        match answered.status, cancelled.status:
            case 410, 200:
                assert cancelled.body["run_id"] == turn.run_id
                assert status["run_status"]["status"] == "cancelled"
            case 200, 200:
                # Answered first: the cancel stopped the run that went on.
                assert cancelled.body["run_id"] == answered.body["run_id"]
                assert status["run_status"]["status"] == "cancelled"
            case 200, 400:
                assert status["run_status"]["status"] == "completed"
            case both:
                raise AssertionError(both)
        assert status["awaiting_input"] is False

    await run_trials(stage, ASK, trial)


async def test_a_new_connection_and_an_answer_resume_the_chat_once(stage: Stage, github: object) -> None:
    del github
    async with asyncio.timeout(20):
        credential_id = await stage.connect_github("ghp_race")
    parley = stage.parley
    with acting_for(stage.client.organization_id):
        credential, _ = await parley.credentials.get(stage.client.organization_id, credential_id)
    skipped = {"kind": "skipped"}

    async def trial(turn: Turn) -> None:
        async def connect() -> Answer:
            with acting_for(stage.client.organization_id):
                count = await integration_connected(parley.chats, stage.client.organization_id, credential)
            return Answer(200, count, {})

        answered, _ = await at_once(lambda: stage.resume(turn, skipped), connect)
        assert answered.status in (200, 410)
        status = await stage.settled(turn.chat_id)
        assert status["run_status"]["status"] == "completed"
        first = await stage.client.listen(turn.chat_id, turn.run_id)
        assert [event["type"] for event in first].count("run_resumed") <= 1
        detail = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body
        assert [message["role"] for message in detail["messages"]] == ["human", "ai"]

    await run_trials(stage, CONNECT, trial)
