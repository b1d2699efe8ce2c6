// An older Mastra 1.x, as small as it can be: a scripted agent that thinks, calls tools in parallel, and answers.
// Start: PORT=4111 node server.mjs   (Node >= 22.13); PORT=0 takes a free port and prints it.
import { Mastra } from '@mastra/core';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { MastraServer } from '@mastra/hono';
import { Hono } from 'hono';
import { serve } from '@hono/node-server';
import { MockLanguageModelV2, simulateReadableStream } from 'ai/test';
import { z } from 'zod';

const usage = (input, output) => ({ inputTokens: input, outputTokens: output, totalTokens: input + output });
const say = (id, ...pieces) => [
  { type: 'text-start', id }, ...pieces.map(delta => ({ type: 'text-delta', id, delta })), { type: 'text-end', id }];
const call = (id, toolName, input) => [
  { type: 'tool-input-start', id, toolName }, { type: 'tool-input-delta', id, delta: JSON.stringify(input) },
  { type: 'tool-input-end', id }, { type: 'tool-call', toolCallId: id, toolName, input: JSON.stringify(input) }];
const finish = (finishReason, u) => ({ type: 'finish', finishReason, usage: u });

// Plays turns[k] on the k-th call after the last user message.
const scripted = (...turns) => new MockLanguageModelV2({
  modelId: 'scripted-1', provider: 'scripted',
  doStream: async ({ prompt }) => {
    const since = prompt.slice(prompt.map(m => m.role).lastIndexOf('user') + 1);
    const parts = turns[Math.min(since.filter(m => m.role === 'assistant').length, turns.length - 1)];
    return { stream: simulateReadableStream({ initialDelayInMs: 1, chunkDelayInMs: 1, chunks: [
      { type: 'stream-start', warnings: [] }, ...parts] }) };
  },
});
const weather = createTool({
  id: 'weather', description: 'Current temperature of a city', inputSchema: z.object({ city: z.string() }),
  execute: async input => {
    if ((input.city ?? input.context?.city) === 'Nowhere') throw new Error('no such city');
    return { celsius: 21 };
  } });
const agent = (id, model, extra = {}) => new Agent({ id, name: id, instructions: 'Answer.', model, ...extra });
const agents = {
  tools: agent('tools', scripted(
    [{ type: 'reasoning-start', id: 'r0' }, { type: 'reasoning-delta', id: 'r0', delta: 'Two cities.' }, { type: 'reasoning-end', id: 'r0' },
      ...say('n0', 'Let me ', 'look.'), ...call('c1', 'weather', { city: 'Paris' }), ...call('c2', 'weather', { city: 'Nowhere' }),
      finish('tool-calls', usage(15, 8))],
    [...say('t1', 'It is ', '21 °C.'), finish('stop', usage(30, 12))]), { tools: { weather } }),
  object: agent('object', scripted([...say('t0', '{"name":', '"Ada"', '}'), finish('stop', usage(11, 22))])),
};
const app = new Hono();
await new MastraServer({ app, mastra: new Mastra({ agents }) }).init();
const server = serve({ fetch: app.fetch, hostname: '127.0.0.1', port: Number(process.env.PORT ?? 4111) },
  ({ port }) => console.log(`listening ${port}`));
process.stdin.resume().on('end', () => { server.closeAllConnections?.(); process.exit(0); });
