// The agent of the demo: plans two days by bike. It thinks, asks two tools and a sub-agent at once, meets a service that
// is down, asks another, and answers with a table. Its tools' data is invented; the run is as Mastra makes it.
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

const sleep = ms => new Promise(r => setTimeout(r, ms));

const forecast = createTool({
  id: 'forecast', description: 'Weather of the next days at a place',
  inputSchema: z.object({ place: z.string(), days: z.number() }),
  execute: async ({ days }) => {
    await sleep(620);
    return [
      { day: 'Friday', sky: 'sunny', high_c: 24, low_c: 13, rain_mm: 0, wind_kmh: 8 },
      { day: 'Saturday', sky: 'sunny', high_c: 26, low_c: 14, rain_mm: 0, wind_kmh: 11 },
      { day: 'Sunday', sky: 'showers from 14:00', high_c: 21, low_c: 15, rain_mm: 9.5, wind_kmh: 27 },
    ].slice(0, days);
  } });
const legs = createTool({
  id: 'legs', description: 'Legs of a bicycle route', inputSchema: z.object({ from: z.string(), to: z.string() }),
  execute: async () => {
    await sleep(380);
    return [
      { leg: 'Geneva – Mont Sion pass', km: 21.4, climb_m: 430, surface: 'road' },
      { leg: 'Mont Sion pass – Annecy', km: 22.8, climb_m: 165, surface: 'road' },
      { leg: 'Round the lake', km: 39.6, climb_m: 340, surface: 'cycle path, 30 km of it' },
    ];
  } });
const rooms = createTool({
  id: 'rooms', description: 'Free rooms in a town', inputSchema: z.object({ town: z.string(), night: z.string() }),
  execute: async () => { await sleep(910); throw new Error('the booking service answered 503: try again later'); } });
const campsites = createTool({
  id: 'campsites', description: 'Campsites near a town', inputSchema: z.object({ near: z.string() }),
  execute: async () => {
    await sleep(450);
    return [
      { name: 'Lakeside meadow', km_from_route: 0.3, pitch_eur: 19.5, tents_only: true, open: true },
      { name: 'Under the castle', km_from_route: 1.8, pitch_eur: 24, tents_only: false, open: true },
      { name: 'Beech wood', km_from_route: 4.1, pitch_eur: 14, tents_only: true, open: false },
    ];
  } });

const thought = `They have two days and want the lake on the better one. I need the forecast for both days, the route with \
its climbs, and a place to sleep in Annecy. None of these waits for another, so I ask for all three at once.`;

const answer = `### Ride round the lake on Saturday

Sunday brings **9.5 mm of rain** from 14:00 and wind up to 27 km/h, Saturday stays dry. So go over on Friday evening or early on \
Saturday, and ride home on Sunday morning.

| Day | Leg | km | Climb | Weather |
|---|---|---:|---:|---|
| Sat | Geneva – Annecy, over Mont Sion | 44.2 | 595 m | sunny, 26 °C |
| Sat | Round the lake | 39.6 | 340 m | sunny, light wind |
| Sun | Annecy – Geneva | 44.2 | 520 m | dry until 14:00 |

At 18 km/h Saturday takes you $t = \\frac{83.8}{18} \\approx 4.7$ hours in the saddle.

1. **Sleep** at *Lakeside meadow*: 300 m from the route, tents only, €19.50. The room search was down, so I looked at campsites.
2. **Leave by 8:00 on Sunday**, to be over the pass before the wind turns.
3. Take a rain jacket all the same.

\`\`\`python
saturday = [21.4, 22.8, 39.6]
print(f"{sum(saturday):.1f} km")  # 83.8 km
\`\`\`
`;

export function tripAgents({ agent, scripted, text, reasoning, call, finish, usage, memory }) {
  const route = agent('route', scripted(
    [...text('t0', 'Looking up the legs. '), ...call('l1', 'legs', { from: 'Geneva', to: 'Annecy' }), finish('tool-calls', usage(148, 31))],
    [...text('t1', 'Three legs, 83.8 km and 935 m of climbing; the steepest part is before Mont Sion.'), finish('stop', usage(263, 38))]),
  { tools: { legs }, description: 'Plans bicycle routes' });
  const trip = agent('trip', scripted(
    [...reasoning('r0', thought),
      ...text('t0', 'I look at the weather, the route and the rooms.'),
      ...call('c1', 'forecast', { place: 'Annecy', days: 3 }),
      ...call('c2', 'agent-route', { prompt: 'Geneva to Annecy and round the lake, by road bike' }),
      ...call('c3', 'rooms', { town: 'Annecy', night: 'Saturday' }),
      finish('tool-calls', usage(412, 187, { reasoningTokens: 64 }))],
    [...text('t1', 'The room search is down. There are campsites by the lake.'),
      ...call('c4', 'campsites', { near: 'Annecy' }), finish('tool-calls', usage(893, 41, { cachedInputTokens: 384 }))],
    [...text('t2', answer),
      { type: 'source', sourceType: 'url', id: 's0', url: 'https://example.com/lake-annecy-by-bike', title: 'Lake Annecy by bike' },
      finish('stop', usage(1127, 356, { cachedInputTokens: 896 }))]),
  { tools: { forecast, rooms, campsites }, agents: { route }, memory, description: 'Plans trips by bicycle' });
  return { trip };
}
