"""The floor: a process that reads the same two model streams a turn and does nothing with them."""

import asyncio
import io
import random
import time

import aiohttp

from bench.child import Order, take_orders


async def _turn(session: aiohttp.ClientSession, order: Order) -> int:
    size = 0
    for body in order["bodies"]:
        async with session.post(order["url"], data=io.BytesIO(body.encode()), headers=order["headers"]) as response:
            response.raise_for_status()
            async for piece in response.content.iter_any():
                size += len(piece)
    return size


async def _carry_out(order: Order) -> Order:
    left = iter(range(order["turns"]))
    chance = random.Random(7)
    walls: list[float] = []
    sizes: list[int] = []

    async def seat(wait: float) -> None:
        await asyncio.sleep(wait)
        for _ in left:
            began = time.perf_counter()
            sizes.append(await _turn(session, order))
            walls.append(time.perf_counter() - began)

    timeout = aiohttp.ClientTimeout(total=180)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as session:
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(order["at_once"]):
                group.create_task(seat(order["spread"] * (number + chance.random()) / order["at_once"]))
        took = time.perf_counter() - began
    return {"seconds": took, "walls": walls, "sizes": sorted(set(sizes)), "errors": [], "characters": []}


if __name__ == "__main__":
    take_orders(_carry_out)
