"""Serves turns until it is killed, and says through a pipe what it has promised.

    kills_child.py PATH KEY PLAN

The plan is JSON: the round's number and seed, whether unanswered words are kept, after
how many turns to close, and what to deliver again. Each line that it prints is JSON, one
write each, so that a killed process leaves no half line.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from itertools import count

from interturn.runtime import Keyring, Overloaded, Runtime, Settings

LANES = 5
SESSIONS = {
    "web": "ana",
    "tel": "ana",
    "mail": "bea",
    "shop": "carla",
    "anon": None,
    "stray": None,
}
SAYINGS = (
    "Me llamo {name}.",
    "Vivo en Madrid, y mi pedido es el {number}.",
    "¿Y el segundo, cuánto cuesta?",
    "Vale, gracias.",
    "Quiero cambiar la entrega al día {day} de mayo, por la tarde.",
)


class Bytes:
    name, byte_level = "bytes/4", True

    def count(self, text):
        return (len(text.encode()) + 3) // 4


def say(kind, **what):
    os.write(1, json.dumps({"kind": kind, **what}).encode() + b"\n")


class Service:
    """Turns of many sessions, some of them at the same one, some delivered again."""

    def __init__(self, runtime, plan):
        self.runtime = runtime
        self.round = plan["round"]
        self.chance = random.Random(plan["seed"])
        self.left = plan["turns"]
        self.numbers = count(1)

    async def lane(self):
        while self.left > 0:
            self.left -= 1
            number = self.round * 10_000 + next(self.numbers)
            name = self.chance.choice(list(SESSIONS))
            saying = self.chance.choice(SAYINGS)
            who = SESSIONS[name] or name
            said = saying.format(name=who.title(), number=number, day=number % 28 + 1)
            text = f"{said} ({number})"
            await self.turn(name, text, text if number % 2 else None)

    async def turn(self, name, text, delivery):
        session = self.runtime.session(name, customer=SESSIONS[name])
        try:
            async with session.turn(text, delivery_id=delivery) as turn:
                if turn.already is None:
                    say("held", session=name, text=text, delivery=delivery)
                    await asyncio.sleep(0)
                    if self.chance.random() < 0.1:
                        say("left", session=name, text=text)
                        return
                elif turn.already.text != f"re: {text}":
                    raise AssertionError("another turn's reply")
                recorded = await turn.reply(f"re: {text}")
            cursor = (await session.layers()).cursor
            say(
                "recorded",
                session=name,
                text=text,
                seq=recorded.seq,
                cursor=cursor,
                again=recorded.duplicate,
            )
        except Overloaded:  # every actor in memory is at work: come again later
            await asyncio.sleep(0)


async def main(path, key, plan):
    settings = Settings(
        window=4,
        active=LANES,
        snapshot_s=0.01,
        lease_s=3_600,
        keep_unanswered=plan["keep"],
    )
    say("opening")
    keyring = Keyring.from_file(key)
    async with Runtime.open(path, keyring=keyring, counter=Bytes(), settings=settings) as runtime:
        service = Service(runtime, plan)
        unanswered = await runtime.unanswered()
        say("open", unanswered=[(found.session_id, found.text) for found in unanswered])
        for found in unanswered:
            await service.turn(found.session_id, found.text, found.delivery_id)
        for name, text in plan["again"]:
            await service.turn(name, text, text)
        await asyncio.gather(*(service.lane() for _ in range(LANES)))
        say("closing")
    say("closed")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
