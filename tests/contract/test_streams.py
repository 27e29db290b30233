"""The event stream: framing, replay, cursors, heartbeats, several readers (contract §4.1, §4.4, §17.1).

The server of this module sends a heartbeat after a tenth of a second.
"""

import asyncio
from uuid import uuid4

import aiohttp
import pytest
from msgspec import structs

from parley.base.settings import read_settings
from parley.chats.upkeep import sweep
from parley.testing.fake_github import FakeGitHub
from tests.contract.frames import HEARTBEAT, Frame, facts_of, frames, frames_until_closed, listening, text_of
from tests.stage import Json, Stage, calls, executes, says

YES_NO = calls("ask_user_yes_no", {"message": "Go on?"})
AWKWARD = ("one\ntwo\r\n", '"quoted" \\ ', "data: x\n\nevent: y\n", "nel\x85 ls\u2028 ps\u2029 ", "ünï🎉")


@pytest.fixture(scope="module")
def settings_extra() -> dict[str, str]:
    """A server whose streams beat fast."""
    return {"PARLEY_STREAM_HEARTBEAT_SECONDS": "0.1"}


@pytest.fixture
def gate() -> str:
    """The name of a barrier of this test's own: one scripted model serves them all."""
    return uuid4().hex


async def read_until(response: aiohttp.ClientResponse, wanted: bytes, times: int = 1) -> bytes:
    """Read an open stream until ``wanted`` has come so many times."""
    raw = b""
    while raw.count(wanted) < times:
        piece = await response.content.readany()
        assert piece, f"the stream closed before {wanted!r}"
        raw += piece
    return raw


def whole_frames(raw: bytes) -> list[Frame]:
    """The complete frames of what was read so far."""
    return frames(raw[: raw.rindex(b"\n\n") + 2])


# ── framing ─────────────────────────────────────────────────────────────────────────────────────


async def test_frames_are_an_id_line_and_one_data_line_ended_by_line_feeds(stage: Stage) -> None:
    await stage.script(calls("get_available_integrations", {"query": "github"}, text="Look."), says(*AWKWARD))
    started = await stage.start()
    async with listening(stage.client, started) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        assert "no-cache" in response.headers["Cache-Control"]
        assert "no-transform" in response.headers["Cache-Control"]
        assert response.headers["X-Accel-Buffering"] == "no"
        assert "Content-Encoding" not in response.headers
        assert "Content-Length" not in response.headers
        found = frames(await response.read())
    assert text_of(found) == "Look." + "".join(AWKWARD)
    assert found[-1].event["type"] == "done"


async def test_no_line_break_of_any_kind_stands_inside_a_frame(stage: Stage) -> None:
    """Line readers that follow Unicode split at U+0085, U+2028 and U+2029 too."""
    await stage.script(says(*AWKWARD))
    started = await stage.start()
    async with listening(stage.client, started) as response:
        live = (await response.read()).decode()
    async with listening(stage.client, started) as response:
        replayed = (await response.read()).decode()
    for text in (live, replayed):
        assert text.splitlines() == text.removesuffix("\n").split("\n")


async def test_ids_of_facts_grow_by_one_from_the_first_event(stage: Stage) -> None:
    turn = await stage.turn(calls("get_organization_credentials", {}), says("Ok."))
    found = await frames_until_closed(stage.client, {"chat_id": turn.chat_id, "run_id": turn.run_id})
    assert [frame.id for frame in found] == [str(number + 1) for number in range(len(found))]


@pytest.mark.parametrize("which", ["unknown run", "run of another chat", "no id", "unknown chat"])
async def test_what_cannot_be_followed_is_404_in_json_before_any_frame(stage: Stage, which: str) -> None:
    one, other = await stage.turn(says("One.")), await stage.turn(says("Other."))
    missing = "00000000-0000-4000-8000-000000000000"
    chat_id, run_id = {
        "unknown run": (one.chat_id, missing),
        "run of another chat": (one.chat_id, other.run_id),
        "no id": (one.chat_id, "nonsense"),
        "unknown chat": (missing, one.run_id),
    }[which]
    async with listening(stage.client, {"chat_id": chat_id, "run_id": run_id}) as response:
        assert response.status == 404
        assert response.content_type == "application/json"
        body = await response.json()
    assert set(body) == {"detail"}
    assert isinstance(body["detail"], str)


async def test_who_may_not_listen_is_refused_before_any_frame(stage: Stage) -> None:
    turn = await stage.turn(says("Mine."))
    client = stage.client
    organization = {"X-Organization-ID": client.organization_id}
    key = {"Authorization": f"Bearer {client.key}"}
    missing = "00000000-0000-4000-8000-000000000000"
    url = f"{client.base_url}/assistant/chat/{turn.chat_id}/listen/{turn.run_id}"
    for headers, status in (
        (organization, 401),
        ({**organization, "Authorization": "Bearer mx_live_wrong"}, 401),
        (key, 400),
        ({**key, "X-Organization-ID": missing}, 403),
    ):
        async with client.session.get(url, headers=headers) as response:
            assert response.status == status
            assert set(await response.json()) == {"detail"}


# ── replay and cursors ──────────────────────────────────────────────────────────────────────────


async def test_a_late_reader_gets_the_run_from_its_first_event_and_then_follows_it(stage: Stage, gate: str) -> None:
    await stage.script(says("Early ", "words, ", "late words.", barrier=gate, barrier_after=3))
    started = await stage.start()
    async with listening(stage.client, started) as early:
        await read_until(early, b"words, ")
        async with listening(stage.client, started) as late:
            raw = await read_until(late, b"words, ")
            assert whole_frames(raw)[0].event["type"] == "metadata"
            await stage.model.release(gate)
            raw += await late.read()
    assert text_of(frames(raw)) == "Early words, late words."
    assert facts_of(frames(raw))[-1]["type"] == "done"


async def test_every_cursor_seen_gives_exactly_the_rest_after_the_end(stage: Stage, gate: str) -> None:
    first = calls("get_organization_credentials", {}, text="Let me lööök. ")
    await stage.script(first, says("Pieces ", "of 🎉 ", "text", barrier=gate, barrier_after=3))
    started = await stage.start()
    async with listening(stage.client, started) as response:
        raw = await read_until(response, "🎉".encode())
        await stage.model.release(gate)
        live = [frame for frame in frames(raw + await response.read()) if frame.event["type"] != "heartbeat"]
    assert any(frame.id and frame.id.count(".") == 2 for frame in live), "no partial-text id was seen"
    await assert_every_cursor_fits(stage, started, live)


async def test_every_cursor_still_fits_after_the_text_rows_were_joined(stage: Stage) -> None:
    pieces = ("Öne, ", "two, ", "thrée, ", "🎉🎉, ", "end")
    first = calls("get_organization_credentials", {}, text="Look. ")
    await stage.script(first, says(*pieces, delay=0.06))
    started = await stage.start()
    live = await frames_until_closed(stage.client, started)
    stage.clock.advance(seconds=61)
    await sweep(stage.parley.chats)
    joined = await frames_until_closed(stage.client, started)
    assert text_of(joined) == "Look. " + "".join(pieces) == text_of(live)
    assert len(joined) < len(live)
    await assert_every_cursor_fits(stage, started, live)


async def test_histories_are_kept_as_long_as_chosen_and_messages_longer(stage: Stage) -> None:
    turn = await stage.turn(says("Kept."))
    started = {"chat_id": turn.chat_id, "run_id": turn.run_id}
    whole = await frames_until_closed(stage.client, started)
    days = stage.parley.settings.event_retention_days
    stage.clock.advance(days=days - 1)
    try:
        await sweep(stage.parley.chats)
        assert facts_of(await frames_until_closed(stage.client, started)) == facts_of(whole)
        stage.clock.advance(days=2)
        await sweep(stage.parley.chats)
        gone = await stage.client.get(f"/assistant/chat/{turn.chat_id}/listen/{turn.run_id}?after={whole[0].id}")
        assert (gone.status, gone.detail) == (404, "Run not found")
    finally:
        stage.clock.advance(days=-days - 1)
    messages = (await stage.client.get(f"/assistant/chat/{turn.chat_id}")).body["messages"]
    assert [message["content"] for message in messages] == ["Do it", "Kept."]
    assert read_settings({"PARLEY_EVENT_RETENTION_DAYS": "7"}).event_retention_days == 7


async def assert_every_cursor_fits(stage: Stage, started: Json, live: list[Frame]) -> None:
    """From the id of each frame, by parameter and by header, exactly the rest is replayed."""
    for number, frame in enumerate(live, start=1):
        assert frame.id is not None
        for rest in (
            await frames_until_closed(stage.client, started, frame.id),
            await frames_until_closed(stage.client, started, Last_Event_ID=frame.id),
        ):
            assert text_of(live[:number]) + text_of(rest) == text_of(live), frame.id
            assert facts_of(live[:number]) + facts_of(rest) == facts_of(live), frame.id


async def test_readers_from_every_cursor_agree_while_the_run_goes_on(stage: Stage, gate: str) -> None:
    first = calls("get_organization_credentials", {}, text="Look. ")
    await stage.script(first, says("Hälf ", "a ", "sentence", barrier=gate, barrier_after=3))
    started = await stage.start()
    async with listening(stage.client, started) as response:
        raw = await read_until(response, b'a "}}')
        so_far = [frame for frame in whole_frames(raw) if frame.event["type"] != "heartbeat"]
        rests: dict[int, list[Frame]] = {}

        async def follow(number: int, after: str) -> None:
            async with listening(stage.client, started, after) as late:
                opened.release()
                rests[number] = [f for f in frames(await late.read()) if f.event["type"] != "heartbeat"]

        opened = asyncio.Semaphore(0)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for number, frame in enumerate(so_far, start=1):
                group.create_task(follow(number, frame.id or ""))
            for _ in so_far:
                await opened.acquire()
            await stage.model.release(gate)
        whole = frames(raw + await response.read())
    assert len(rests) == len(so_far)
    for number, rest in rests.items():
        assert text_of(so_far[:number]) + text_of(rest) == "Look. Hälf a sentence" == text_of(whole)
        assert facts_of(so_far[:number]) + facts_of(rest) == [
            event for event in facts_of(whole) if event["type"] != "heartbeat"
        ]


@pytest.mark.parametrize("header", [False, True])
async def test_a_cursor_at_the_end_of_an_ended_run_closes_at_once(stage: Stage, *, header: bool) -> None:
    turn = await stage.turn(says("Over."))
    started = {"chat_id": turn.chat_id, "run_id": turn.run_id}
    last = turn.events[-1]["_id"]
    async with asyncio.timeout(20):
        if header:
            assert await frames_until_closed(stage.client, started, Last_Event_ID=last) == []
        else:
            assert await frames_until_closed(stage.client, started, last) == []


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.2", "1.2.3.4", "1e3", "99999999999", "٣x"])
async def test_a_cursor_that_is_none_gives_the_whole_run(stage: Stage, cursor: str) -> None:
    turn = await stage.turn(says("All of it."))
    found = await frames_until_closed(stage.client, {"chat_id": turn.chat_id, "run_id": turn.run_id}, cursor)
    assert found[0].event["type"] == "metadata"
    assert text_of(found) == "All of it."


async def test_a_reader_who_falls_far_behind_loses_and_doubles_nothing(stage: Stage) -> None:
    pieces = [f"{number:05}" * 4_000 for number in range(100)]
    await stage.script(says(*pieces))
    started = await stage.start()
    async with listening(stage.client, started) as response:
        assert response.status == 200
        await stage.settled(started["chat_id"])  # the reader reads nothing until all is said
        found = frames(await response.read())
    assert text_of(found) == "".join(pieces)
    assert facts_of(found)[-1]["type"] == "done"


async def test_an_empty_reply_is_an_ended_turn(stage: Stage) -> None:
    turn = await stage.turn(says())
    assert turn.types == ["metadata", "done"]
    assert turn.data("done")["response"] == ""
    after = await stage.turn(says("Better."), chat_id=turn.chat_id)
    assert after.text == "Better."


async def test_a_reader_who_leaves_does_not_end_the_run(stage: Stage, gate: str) -> None:
    await stage.script(says("Nobody ", "listens", barrier=gate, barrier_after=2))
    started = await stage.start()
    async with listening(stage.client, started) as response:
        await read_until(response, b"Nobody ")
    await stage.model.release(gate)
    status = await stage.settled(started["chat_id"])
    assert status["run_status"]["status"] == "completed"
    assert text_of(await frames_until_closed(stage.client, started)) == "Nobody listens"


# ── silence, pauses ─────────────────────────────────────────────────────────────────────────────


def test_a_heartbeat_comes_after_fifteen_seconds_unless_chosen() -> None:
    assert read_settings({}).stream_heartbeat_seconds == 15.0


async def test_heartbeats_come_while_the_model_is_silent(stage: Stage, gate: str) -> None:
    await stage.script(says("Finally.", barrier=gate, barrier_after=1))
    started = await stage.start()
    async with listening(stage.client, started) as response:
        raw = await read_until(response, HEARTBEAT + b"\n\n", 2)
        assert text_of(frames(raw)) == ""
        await stage.model.release(gate)
        assert text_of(frames(raw + await response.read())) == "Finally."


async def test_heartbeats_come_while_a_tool_runs(stage: Stage, github: FakeGitHub) -> None:
    await stage.connect_github(github.token)
    await stage.script(executes("list_repositories"), says("Listed."))
    github.hold()
    started = await stage.start()
    async with listening(stage.client, started) as response:
        raw = await read_until(response, b'"type":"tool_call"')
        raw += await read_until(response, HEARTBEAT + b"\n\n", 2)
        assert b"tool_result" not in raw
        github.let_go()
        raw += await response.read()
    assert text_of(frames(raw)) == "Listed."


async def test_a_paused_run_stays_open_on_heartbeats_until_it_is_cancelled(stage: Stage) -> None:
    await stage.script(YES_NO)
    started = await stage.start()
    async with listening(stage.client, started) as response:
        raw = await read_until(response, b'"type":"user_input_request"')
        raw += await read_until(response, HEARTBEAT + b"\n\n", 2)
        assert b'"interrupted"' not in raw
        await stage.client.post(f"/assistant/chat/{started['chat_id']}/cancel")
        raw += await response.read()
    assert facts_of(frames(raw))[-1] == {"type": "cancelled", "data": {"reason": "user_cancelled"}}


async def test_two_tabs_of_a_paused_run_both_hear_of_the_resume(stage: Stage) -> None:
    gate = uuid4().hex
    await stage.script(structs.replace(YES_NO, barrier=gate), says("On."))
    started = await stage.start()
    async with listening(stage.client, started) as one, listening(stage.client, started) as two:
        # Both are there before the pause: who comes after it gets a replay that ends with it.
        raw = [await read_until(tab, b'"type":"metadata"') for tab in (one, two)]
        await stage.model.release(gate)
        for number, tab in enumerate((one, two)):
            raw[number] += await read_until(tab, b'"type":"user_input_request"')
        question = next(e for e in facts_of(whole_frames(raw[0])) if e["type"] == "user_input_request")["data"]
        await stage.settled(started["chat_id"])
        body = {
            "request_id": question["request_id"],
            "response": {"kind": "yes_no", "answer": True},
            "llm": stage.llm,
        }
        resumed = await stage.client.post(f"/assistant/chat/{started['chat_id']}/resume", body)
        ends = [facts_of(frames(before + await tab.read()))[-1] for before, tab in zip(raw, (one, two), strict=True)]
    wanted: Json = {"type": "run_resumed", "data": {"new_run_id": resumed.body["run_id"]}}
    assert ends == [wanted, wanted]
    assert text_of(await frames_until_closed(stage.client, resumed.body)) == "On."


async def test_a_reader_who_lost_a_paused_stream_learns_of_the_resume_by_its_cursor(stage: Stage) -> None:
    turn = await stage.turn(YES_NO)
    late = await frames_until_closed(stage.client, {"chat_id": turn.chat_id, "run_id": turn.run_id})
    assert late[-1].event["type"] == "interrupted"
    await stage.script(says("On."))
    resumed = await stage.resume(turn, {"kind": "yes_no", "answer": True})
    rest = await frames_until_closed(stage.client, {"chat_id": turn.chat_id, "run_id": turn.run_id}, late[-1].id)
    assert facts_of(rest) == [{"type": "run_resumed", "data": {"new_run_id": resumed.body["run_id"]}}]
    await stage.follow(resumed.body)
