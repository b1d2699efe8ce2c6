"""An agent to try things with, without a key: its model plays a script, its tools really run; it plans a trip by bike.

It thinks, asks two tools and a sub-agent at once, meets a service that is down, asks another, and answers with a table.
`trip.jsonl` beside it is the same run, recorded from a real Mastra server. The tools' data is invented.
"""

from __future__ import annotations

import asyncio
from typing import Any

from nbmastra.errors import SettingsError
from nbmastra.runtime import Agent
from nbmastra.testing import ScriptedModel, call, say, source, think, usage
from nbmastra.tools import Tool, tool

__all__ = ["PROMPT", "demo_agent"]

PROMPT = (
    "Two days by bike from Geneva to Lake Annecy and back: on which day do I ride round the lake, and where do I sleep?"
)
"""What one asks it."""

_PIECE_S = 0.025
"""Seconds between two pieces of an answer, at speed 1."""

_THOUGHT = (
    "They have two days and want the lake on the better one. I need the forecast for both days, the route with its "
    "climbs, and a place to sleep in Annecy. None of these waits for another, so I ask for all three at once."
)
_ANSWER = """### Ride round the lake on Saturday

Sunday brings **9.5 mm of rain** from 14:00 and wind up to 27 km/h, Saturday stays dry. So go over on Friday evening \
or early on Saturday, and ride home on Sunday morning.

| Day | Leg | km | Climb | Weather |
|---|---|---:|---:|---|
| Sat | Geneva – Annecy, over Mont Sion | 44.2 | 595 m | sunny, 26 °C |
| Sat | Round the lake | 39.6 | 340 m | sunny, light wind |
| Sun | Annecy – Geneva | 44.2 | 520 m | dry until 14:00 |

At 18 km/h Saturday takes you $t = \\frac{83.8}{18} \\approx 4.7$ hours in the saddle.

1. **Sleep** at *Lakeside meadow*: 300 m from the route, tents only, €19.50. The room search was down, so I looked at \
campsites.
2. **Leave by 8:00 on Sunday**, to be over the pass before the wind turns.
3. Take a rain jacket all the same.

```python
saturday = [21.4, 22.8, 39.6]
print(f"{sum(saturday):.1f} km")  # 83.8 km
```
"""

_FORECAST = (
    {"day": "Friday", "sky": "sunny", "high_c": 24, "low_c": 13, "rain_mm": 0, "wind_kmh": 8},
    {"day": "Saturday", "sky": "sunny", "high_c": 26, "low_c": 14, "rain_mm": 0, "wind_kmh": 11},
    {"day": "Sunday", "sky": "showers from 14:00", "high_c": 21, "low_c": 15, "rain_mm": 9.5, "wind_kmh": 27},
)
_LEGS = (
    {"leg": "Geneva – Mont Sion pass", "km": 21.4, "climb_m": 430, "surface": "road"},
    {"leg": "Mont Sion pass – Annecy", "km": 22.8, "climb_m": 165, "surface": "road"},
    {"leg": "Round the lake", "km": 39.6, "climb_m": 340, "surface": "cycle path, 30 km of it"},
)
_CAMPSITES = (
    {"name": "Lakeside meadow", "km_from_route": 0.3, "pitch_eur": 19.5, "tents_only": True, "open": True},
    {"name": "Under the castle", "km_from_route": 1.8, "pitch_eur": 24, "tents_only": False, "open": True},
    {"name": "Beech wood", "km_from_route": 4.1, "pitch_eur": 14, "tents_only": True, "open": False},
)


class ServiceDown(Exception):
    """A service that a tool asks doesn't answer."""


def demo_agent(*, speed: float | None = 1.0) -> Agent:
    """The agent that plans a trip by bike, at `speed` times its pace (None: at once). It needs no server and no key.

    `demo_recording()` is the same run as a real server made it. Raises SettingsError.
    """
    if speed is not None and not speed > 0:
        raise SettingsError(f"speed= is a number above 0, or None for at once; not {speed!r}")
    slow = 0.0 if speed is None else 1 / speed
    forecast, legs, rooms, campsites = _tools(slow)

    def scripted(*turns: Any) -> ScriptedModel:
        return ScriptedModel(turns, delay_s=_PIECE_S * slow)

    route = Agent(
        "route",
        description="Plans bicycle routes",
        model=scripted(
            [say("Looking up the legs. "), call("legs", "l1", start="Geneva", end="Annecy"), usage(148, 31)],
            [
                say("Three legs, 83.8 km and 935 m of climbing; the steepest part is before Mont Sion."),
                usage(263, 38),
            ],
        ),
        tools=[legs],
    )
    return Agent(
        "trip",
        description="Plans trips by bicycle",
        instructions="Plan trips by bicycle.",
        model=scripted(
            [
                think(_THOUGHT),
                say("I look at the weather, the route and the rooms."),
                call("forecast", "c1", place="Annecy", days=3),
                call("agent-route", "c2", prompt="Geneva to Annecy and round the lake, by road bike"),
                call("rooms", "c3", town="Annecy", night="Saturday"),
                usage(412, 187, reasoning_tokens=64),
            ],
            [
                say("The room search is down. There are campsites by the lake."),
                call("campsites", "c4", near="Annecy"),
                usage(893, 41, cached_input_tokens=384),
            ],
            [
                say(_ANSWER),
                source("https://example.com/lake-annecy-by-bike", "Lake Annecy by bike"),
                usage(1127, 356, cached_input_tokens=896),
            ],
        ),
        tools=[forecast, rooms, campsites],
        agents={"route": route},
    )


def _tools(slow: float) -> tuple[Tool, ...]:
    """The tools; each takes the time that a service on the net would."""

    @tool
    async def forecast(place: str, days: int = 3) -> list[dict[str, Any]]:
        """Weather of the next days at a place."""
        await asyncio.sleep(0.62 * slow)
        return list(_FORECAST[:days])

    @tool
    async def legs(start: str, end: str) -> list[dict[str, Any]]:
        """Legs of a bicycle route."""
        await asyncio.sleep(0.38 * slow)
        return list(_LEGS)

    @tool
    async def rooms(town: str, night: str) -> list[dict[str, Any]]:
        """Free rooms in a town."""
        await asyncio.sleep(0.91 * slow)
        raise ServiceDown("the booking service answered 503: try again later")

    @tool
    async def campsites(near: str) -> list[dict[str, Any]]:
        """Campsites near a town."""
        await asyncio.sleep(0.45 * slow)
        return list(_CAMPSITES)

    return forecast, legs, rooms, campsites
