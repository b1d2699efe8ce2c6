// A real Mastra server (npm @mastra/core + @mastra/hono) whose language model is scripted, so that
// every run streams the same chunks without a provider key. Only the model is scripted: the agent
// loop, tools, memory, background tasks, durable runs, workflows and the HTTP/SSE wire are Mastra's.
// Start: PORT=4111 DB=file:server.db node server.mjs   (Node >= 22.13; README.md has all variables)
import { Mastra } from '@mastra/core';
import { Agent } from '@mastra/core/agent';
import { createDurableAgent } from '@mastra/core/agent/durable';
import { createScorer } from '@mastra/core/evals';
import { createTool } from '@mastra/core/tools';
import { createStep, createWorkflow } from '@mastra/core/workflows';
import { LibSQLStore } from '@mastra/libsql';
import { Memory } from '@mastra/memory';
import { Observability, MastraStorageExporter } from '@mastra/observability';
import { MastraServer } from '@mastra/hono';
import { Hono } from 'hono';
import { serve } from '@hono/node-server';
import { MockLanguageModelV2, simulateReadableStream } from 'ai/test';
import { z } from 'zod';
import { conformanceAgents, scenarios, setObjectives } from './conformance.mjs';
import { clientToolAgents } from './client_tools.mjs';
import { tripAgents } from './trip.mjs';

const DELAY = Number(process.env.CHUNK_DELAY_MS ?? 5);
const pieces = (s, n) => s.match(new RegExp(`[\\s\\S]{1,${n}}`, 'gu')) ?? [];
const usage = (input, output, extra = {}) => ({ inputTokens: input, outputTokens: output, totalTokens: input + output, ...extra });
const text = (id, s, n = 6) => [
  { type: 'text-start', id }, ...pieces(s, n).map(delta => ({ type: 'text-delta', id, delta })), { type: 'text-end', id }];
const reasoning = (id, s, providerMetadata) => [
  { type: 'reasoning-start', id, providerMetadata },
  ...pieces(s, 9).map(delta => ({ type: 'reasoning-delta', id, delta })), { type: 'reasoning-end', id, providerMetadata }];
const call = (id, toolName, input, raw = JSON.stringify(input)) => [
  { type: 'tool-input-start', id, toolName }, ...pieces(raw, 7).map(delta => ({ type: 'tool-input-delta', id, delta })),
  { type: 'tool-input-end', id }, { type: 'tool-call', toolCallId: id, toolName, input: raw }];
const finish = (finishReason, u) => ({ type: 'finish', finishReason, usage: u });

// Model calls that were aborted, for tests of cancelling.
let aborts = 0;
const waiting = [];
const countAbort = () => { aborts += 1; waiting.splice(0).forEach(wake => wake()); };

// As ScriptedModel counts: what a goal's judge says is no user's message, rejected answers count too.
const isAside = ({ content }) => /^<(system-reminder|current-objective)/.test(content[0]?.text ?? '');
const callsSinceUser = prompt => {
  const sinceUser = prompt.slice(prompt.map(m => m.role === 'user' && !isAside(m)).lastIndexOf(true) + 1);
  const rejected = prompt.filter(m => m.role === 'system' && m.content.includes('[Processor Feedback]'));
  return sinceUser.filter(m => m.role === 'assistant').length + rejected.length;
};

// A model that plays turns[k] on the k-th call after the last user message (the last turn repeats).
const scripted = (...turns) => new MockLanguageModelV2({
  modelId: 'scripted-1', provider: 'scripted',
  doStream: async ({ prompt, abortSignal }) => {
    abortSignal?.addEventListener('abort', countAbort, { once: true });
    const k = callsSinceUser(prompt);
    const parts = turns[Math.min(k, turns.length - 1)];
    if (parts instanceof Error) throw parts;
    return { stream: simulateReadableStream({ initialDelayInMs: DELAY, chunkDelayInMs: DELAY, chunks: [
      { type: 'stream-start', warnings: [] },
      { type: 'response-metadata', id: `resp-${k}`, modelId: 'scripted-1', timestamp: new Date(0) }, ...parts] }) };
  },
  doGenerate: async ({ prompt }) => {   // the same script, not streamed
    const k = callsSinceUser(prompt);
    const parts = turns[Math.min(k, turns.length - 1)];
    if (parts instanceof Error) throw parts;
    const content = []; let done = { finishReason: 'unknown', usage: usage(0, 0) };
    for (const p of parts) {
      if (p.type === 'error') throw p.error;
      const last = content.at(-1);
      if (p.type === 'text-start') content.push({ type: 'text', text: '' });
      else if (p.type === 'reasoning-start') content.push({ type: 'reasoning', text: '', providerMetadata: p.providerMetadata });
      else if (p.type === 'text-delta' || p.type === 'reasoning-delta') last.text += p.delta;
      else if (p.type === 'tool-call' || p.type === 'source' || p.type === 'file') content.push(p);
      else if (p.type === 'finish') done = p;
    }
    return { content, finishReason: done.finishReason, usage: done.usage, warnings: [],
      response: { id: `resp-${k}`, modelId: 'scripted-1', timestamp: new Date(0) } };
  },
});

const database = process.env.DB ?? 'file::memory:?cache=shared';
const storage = database.startsWith('postgres')
  ? new (await import('@mastra/pg')).PostgresStore({ id: 'store', connectionString: database })
  : new LibSQLStore({ id: 'store', url: database });
const memory = new Memory({ storage });
const sleep = ms => new Promise(r => setTimeout(r, ms));

const weather = createTool({
  id: 'weather', description: 'Current temperature of a city', inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => { if (city === 'Nowhere') throw new Error('no such city'); return { celsius: 21 }; } });
const research = createTool({
  id: 'research', description: 'Slow research', inputSchema: z.object({ topic: z.string() }), background: { enabled: true },
  execute: async ({ topic }, ctx) => {
    if (topic === 'fail') throw new Error('source offline');
    await ctx?.writer?.write({ type: 'progress', pct: 50 }); await sleep(300); return { summary: `notes on ${topic}` }; } });
const review = createTool({
  id: 'review', description: 'Ask a person', inputSchema: z.object({ draft: z.string() }), background: { enabled: true },
  execute: async ({ draft }, ctx) => {
    const { suspend, resumeData } = ctx?.agent ?? {};
    if (!resumeData) { await suspend?.({ awaiting: 'approval', draft }); return; }
    return { approvedBy: resumeData.reviewer }; } });
const deploy = createTool({
  id: 'deploy', description: 'Needs approval', inputSchema: z.object({ target: z.string() }), requireApproval: true,
  execute: async ({ target }) => ({ deployed: target }) });
const build = createTool({
  id: 'build', description: 'Emits custom data chunks', inputSchema: z.object({ n: z.number() }),
  execute: async ({ n }, ctx) => {
    for (let i = 1; i <= n; i++) await ctx?.writer?.custom({ type: 'data-build-log', data: { line: `module ${i} of ${n}` }, transient: true });
    return { ok: true }; } });

const ask = createTool({
  id: 'ask', description: 'Ask the user, in the foreground', inputSchema: z.object({ question: z.string() }),
  suspendSchema: z.object({ question: z.string() }), resumeSchema: z.object({ answer: z.string() }),
  execute: async ({ question }, ctx) => {
    const { suspend, resumeData } = ctx?.agent ?? {};
    if (!resumeData) return await suspend?.({ question });
    return { answer: resumeData.answer }; } });
const saysFinished = createScorer({ id: 'says-finished', description: 'Does the answer say finished?' })
  .generateScore(({ run }) => (JSON.stringify(run.output ?? '').includes('finished') ? 1 : 0))
  .generateReason(({ score }) => (score ? 'it says finished' : 'it does not say finished yet'));

const blockSecrets = { id: 'block-secrets', name: 'block-secrets',
  async processOutputStream({ part, abort }) {
    if (part.type === 'text-delta' && part.payload.text.includes('SECRET')) abort('secret in output', { metadata: { rule: 'secrets' } });
    return part; } };

const agent = (id, model, extra = {}) => new Agent({ id, name: id, description: id, instructions: 'Answer.', model, ...extra });
const longText = Array.from({ length: 400 }, (_, i) => `Paragraph ${i}: *lorem* **ipsum** \`code\` dolor.\n\n`).join('');
const sub = agent('sub', scripted([...text('t0', 'sub-agent says hi'), finish('stop', usage(5, 5))]));
const slow = agent('slow', scripted([...text('t0', longText.slice(0, 4000), 20), finish('stop', usage(10, 800))]), { memory });
const agents = {
  text: agent('text', scripted([
    ...reasoning('r0', 'Let me think about it.', { anthropic: { signature: 'c2ln' } }),
    ...text('t0', '# Hello\n\nA **bold** word, é漢字🎉, `code` and\n\n```python\nprint("hi")\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n'),
    { type: 'source', sourceType: 'url', id: 's0', url: 'https://example.com/a', title: 'Example' },
    { type: 'file', mediaType: 'image/png', data: 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==' },
    finish('stop', usage(10, 20, { reasoningTokens: 5, cachedInputTokens: 3 }))])),
  tools: agent('tools', scripted(
    [...text('n0', 'Let me look that up.'), ...call('c1', 'weather', { city: 'Paris' }), ...call('c2', 'weather', { city: 'Nowhere' }), finish('tool-calls', usage(15, 8))],
    [...text('t1', 'It is 21 °C in Paris.'), finish('stop', usage(30, 12))]), { tools: { weather } }),
  'bad-args': agent('bad-args', scripted(
    [...call('c1', 'weather', null, '{"city":"Lima"}<|call|>'), finish('tool-calls', usage(9, 4))],
    [...text('t1', 'done'), finish('stop', usage(12, 3))]), { tools: { weather } }),
  object: agent('object', scripted([...text('t0', JSON.stringify({ name: 'Ada', age: 36, tags: ['math', 'code'] }), 5), finish('stop', usage(11, 22))])),
  list: agent('list', scripted([...text('t0', JSON.stringify({ elements: [{ n: 1 }, { n: 2 }, { n: 3 }] }), 5), finish('stop', usage(11, 22))])),
  background: agent('background', scripted(
    [...call('b1', 'research', { topic: 'solana' }), ...call('b2', 'research', { topic: 'fail' }), finish('tool-calls', usage(15, 8))],
    [...text('t1', 'Started; I will report.'), finish('stop', usage(30, 12))],
    [...text('t2', 'The research is finished.'), finish('stop', usage(40, 13))]), { tools: { research }, memory }),
  suspend: agent('suspend', scripted(
    [...call('s1', 'review', { draft: 'v1' }), finish('tool-calls', usage(15, 8))],
    [...text('t1', 'Waiting for review.'), finish('stop', usage(30, 12))]), { tools: { review }, memory }),
  approve: agent('approve', scripted(
    [...call('a1', 'deploy', { target: 'prod' }), finish('tool-calls', usage(7, 3))],
    [...text('t1', 'Deployed.'), finish('stop', usage(9, 2))]), { tools: { deploy }, memory }),
  ask: agent('ask', scripted(
    [...call('q1', 'ask', { question: 'Which city?' }), finish('tool-calls', usage(7, 3))],
    [...text('t1', 'Thanks, noted.'), finish('stop', usage(9, 2))]), { tools: { ask }, memory }),
  goal: agent('goal', scripted([...text('t0', 'Still working on it.'), finish('stop', usage(8, 4))], [...text('t1', 'Now it is finished.'), finish('stop', usage(12, 5))]),
    { memory, goal: { judge: scripted([...text('j', 'unused'), finish('stop', usage(1, 1))]), maxRuns: 3, scorer: saysFinished } }),
  'task-complete': agent('task-complete', scripted([...text('t0', 'Still working on it.'), finish('stop', usage(8, 4))], [...text('t1', 'Now it is finished.'), finish('stop', usage(12, 5))]),
    { memory, defaultOptions: { isTaskComplete: { scorers: [saysFinished] }, maxSteps: 4 } }),
  'client-tool': agent('client-tool', scripted(
    [...call('k1', 'head_of_table', { rows: 2 }), finish('tool-calls', usage(7, 3))],
    [...text('t1', 'The table starts with a.'), finish('stop', usage(9, 2))])),
  data: agent('data', scripted([...call('d1', 'build', { n: 3 }), finish('tool-calls', usage(7, 3))], [...text('t1', 'Built.'), finish('stop', usage(9, 2))]), { tools: { build } }),
  tripwire: agent('tripwire', scripted([...text('t0', 'The key is: SECRET-1234, keep it.', 12), finish('stop', usage(6, 9))]), { outputProcessors: [blockSecrets] }),
  error: agent('error', scripted([...text('t0', 'partial'), { type: 'error', error: new Error('provider went away') }])),
  'error-first': agent('error-first', scripted(new Error('no such model'))),
  supervisor: agent('supervisor', scripted(
    [...call('d1', 'agent-sub', { prompt: 'say hi' }), finish('tool-calls', usage(15, 8))],
    [...text('t1', 'The sub-agent said hi.'), finish('stop', usage(30, 12))]), { agents: { sub }, memory }),
  slow, 'durable': createDurableAgent({ agent: agent('durable', scripted([...text('t0', longText.slice(0, 4000), 20), finish('stop', usage(10, 800))])) }),
  'durable-tools': createDurableAgent({ agent: agent('durable-tools', scripted(
    [...text('n0', 'Let me look that up.'), ...call('c1', 'weather', { city: 'Paris' }), finish('tool-calls', usage(15, 8))],
    [...text('t1', 'It is 21 °C in Paris.'), finish('stop', usage(30, 12))]), { tools: { weather } }) }),
  'durable-approve': createDurableAgent({ agent: agent('durable-approve', scripted(
    [...call('a1', 'deploy', { target: 'prod' }), finish('tool-calls', usage(7, 3))],
    [...text('t1', 'Deployed.'), finish('stop', usage(9, 2))]), { tools: { deploy }, memory }) }),
  ...conformanceAgents(process.env.CONFORMANCE === '1' ? scenarios : [], { agent, scripted, text, reasoning, call, finish, usage, memory, tools: { weather, deploy, ask, build, research, review },
    processors: { 'block-secrets': blockSecrets }, scorers: { 'says-finished': saysFinished } }),
  ...clientToolAgents({ agent, text, reasoning, call, finish, usage, memory, tools: { weather, deploy, research } }),
  ...tripAgents({ agent, scripted, text, reasoning, call, finish, usage, memory }),
  long: agent('long', scripted([...text('t0', longText, 8), finish('stop', usage(10, 9000))])),
};
const double = createStep({ id: 'double', inputSchema: z.object({ n: z.number() }), outputSchema: z.object({ n: z.number() }),
  execute: async ({ inputData, writer }) => { await writer.write({ type: 'progress', pct: 50 }); return { n: inputData.n * 2 }; } });
const increment = createStep({ id: 'increment', inputSchema: z.object({ n: z.number() }), outputSchema: z.object({ n: z.number() }),
  execute: async ({ inputData }) => ({ n: inputData.n + 1 }) });
const arithmetic = createWorkflow({ id: 'arithmetic', inputSchema: z.object({ n: z.number() }), outputSchema: z.object({ n: z.number() }) })
  .then(double).then(increment).commit();
const confirm = createStep({ id: 'confirm', inputSchema: z.object({ n: z.number() }), outputSchema: z.object({ n: z.number(), by: z.string() }),
  suspendSchema: z.object({ question: z.string() }), resumeSchema: z.object({ by: z.string() }),
  execute: async ({ inputData, resumeData, suspend }) => (resumeData ? { n: inputData.n, by: resumeData.by } : suspend({ question: `Is ${inputData.n} right?` })) });
const confirmed = createWorkflow({ id: 'confirmed', inputSchema: z.object({ n: z.number() }), outputSchema: z.object({ n: z.number(), by: z.string() }) })
  .then(double).then(confirm).commit();
const asksAgent = createWorkflow({ id: 'asks-agent', inputSchema: z.object({ prompt: z.string() }), outputSchema: z.object({ text: z.string() }) })
  .then(createStep(sub)).commit();
const linger = createStep({ id: 'linger', inputSchema: z.object({ n: z.number() }), outputSchema: z.object({ n: z.number() }),
  execute: async ({ inputData, abortSignal }) => new Promise((done, fail) => {
    const timer = setTimeout(() => done(inputData), 60_000);
    abortSignal.addEventListener('abort', () => { clearTimeout(timer); fail(new Error('cancelled')); }); }) });
const lingering = createWorkflow({ id: 'lingering', inputSchema: z.object({ n: z.number() }), outputSchema: z.object({ n: z.number() }) })
  .then(double).then(linger).commit();

const observability = new Observability({ configs: { default: { serviceName: 'reference', exporters: [new MastraStorageExporter()] } } });
const mastra = new Mastra({ observability, storage, agents, workflows: { arithmetic, confirmed, 'asks-agent': asksAgent, lingering }, backgroundTasks: { enabled: true } });
if (process.env.CONFORMANCE === '1') await setObjectives(mastra, scenarios);
await mastra.getAgent('goal').setObjective('Say that it is finished', { threadId: 'goal-thread', resourceId: 'u1' });
const app = new Hono();
await new MastraServer({ app, mastra }).init();
// For tests of clients: waits until more than `after` model calls were aborted; the same API behind a token.
app.get('/test/aborts', async c => {
  while (aborts <= Number(c.req.query('after') ?? -1)) await new Promise(wake => waiting.push(wake));
  return c.json({ aborts }); });
app.all('/locked/api/*', c => (c.req.header('authorization') === 'Bearer letmein'
  ? app.fetch(new Request(c.req.url.replace('/locked', ''), c.req.raw)) : c.json({ error: 'Authentication required' }, 401)));
if (process.env.EXIT_WITH_STDIN === '1') process.stdin.on('end', () => process.exit(0)).resume();
serve({ fetch: app.fetch, hostname: '127.0.0.1', port: Number(process.env.PORT ?? 4111) }, ({ port }) => console.log(`listening ${port}`));
