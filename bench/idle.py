"""Two thousand people who wait: each listens to a turn that has asked a question."""

import asyncio
import json

from bench.child import Child
from bench.contestants import LLM, House
from bench.machine import cpu_seconds, resident_bytes
from bench.report import Report
from bench.rounds import BenchFailed
from bench.scenario import MESSAGE
from parley.testing.scripted_model import ScriptedModel
from parley.testing.scripted_wire import ScriptedCall, ScriptedReply

AT_ONCE = 20
# Longer than the heartbeat's 15 s: every stream has beaten once.
WATCH_SECONDS = 20.0
SETTLE_SECONDS = 3.0
ANSWER_SECONDS = 120.0


async def measure_idle(
    report: Report, house: House, model: ScriptedModel, key: str, listeners: Child, *, count: int
) -> None:
    """Memory and CPU of that many silent streams. Raises BenchFailed when one of them ends."""
    asks = ScriptedReply(calls=[ScriptedCall("ask_user_free_text", json.dumps({"message": "Which one?"}))])
    await model.script(key, asks, by_step=True)
    body = {"message": MESSAGE, "llm": LLM}
    pausing = {"kind": "pause", **house.place, "body": body, "patience": ANSWER_SECONDS}
    paused = await listeners.ask({**pausing, "turns": count, "at_once": AT_ONCE})
    await asyncio.sleep(SETTLE_SECONDS)
    before = resident_bytes(house.pid)
    await listeners.ask({"kind": "idle", **house.place, "paths": paused["paths"]})
    async with asyncio.timeout(ANSWER_SECONDS):
        while (said := await listeners.ask({"kind": "idle-count"}))["accepted"] < count:
            await asyncio.sleep(0.2)
    used = cpu_seconds(house.pid)
    await asyncio.sleep(WATCH_SECONDS)
    share = (cpu_seconds(house.pid) - used) / WATCH_SECONDS
    said = await listeners.ask({"kind": "idle-count"})
    if said["open"] != count:
        raise BenchFailed(f"{count - said['open']} of {count} idle streams ended")
    each = (resident_bytes(house.pid) - before) / count / 1024
    await listeners.ask({"kind": "idle-end"})
    report.most(f"{count} idle streams: memory each", each, 15, "{:.1f} KB")
    report.add(f"{count} idle streams: CPU, heartbeats included", f"{100 * share:.1f} % of a core")
    report.figures["idle"] = {"streams": count, "kb_each": each, "core_share": share}
