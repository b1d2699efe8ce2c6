// The agents of tests/conformance/scenarios.json, made of Mastra's own parts: the same file makes the local agents.
import { readFileSync } from 'node:fs';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

const file = new URL('../conformance/scenarios.json', import.meta.url);
export const scenarios = JSON.parse(readFileSync(file, 'utf8'));
const agentId = (scenario, name) => `cf-${scenario.id}-${name}`;

// A turn of the script as parts of the AI SDK; ids count from 0 within a turn, as ScriptedModel's do.
function turn(parts, { text, reasoning, call, finish, usage }) {
  const made = []; const count = { t: 0, r: 0, c: 0 };
  let reason = 'stop'; let used = { inputTokens: undefined, outputTokens: undefined, totalTokens: undefined };
  for (const part of parts) {
    if ('fail' in part) {
      if (!made.length) return new Error(part.fail);
      return [...made, { type: 'error', error: new Error(part.fail) }];
    }
    if ('say' in part) made.push(...text(`t${count.t++}`, part.say.repeat(part.repeat ?? 1)));
    else if ('think' in part) made.push(...reasoning(`r${count.r++}`, part.think, part.metadata));
    else if ('call' in part) {
      const id = part.id ?? `c${++count.c}`;
      made.push(...('raw' in part ? call(id, part.call, null, part.raw) : call(id, part.call, part.args)));
      reason = 'tool-calls';
    } else if ('source' in part) made.push({ type: 'source', sourceType: 'url', id: 's0', url: part.source, title: part.title });
    else if ('file' in part) made.push({ type: 'file', mediaType: part.file, data: part.data });
    else if ('usage' in part) used = usage(...part.usage);
    else if ('reason' in part) reason = part.reason;
    else throw new Error(`unknown part ${JSON.stringify(part)}`);
  }
  return [...made, finish(reason, used)];
}

const count = createTool({
  id: 'count', description: 'Counts', inputSchema: z.object({ to: z.number() }),
  execute: async ({ to }, ctx) => {
    for (let n = 1; n <= to; n++) await ctx?.writer?.write({ type: 'counted', n });
    return { counted: to }; } });
const blockQuestions = { id: 'block-questions', name: 'block-questions',
  processInput({ messages, abort }) {
    if (JSON.stringify(messages).includes('?')) abort('no questions', { metadata: { rule: 'questions' } });
    return messages; } };
const noRudeness = { id: 'no-rudeness', name: 'no-rudeness',
  processOutputStep({ text, abort, messages, retryCount }) {
    if (text?.includes('rude') && !retryCount) abort('be polite', { retry: true, metadata: { rule: 'manners' } });
    return messages; } };
const neverSatisfied = { id: 'never-satisfied', name: 'never-satisfied',
  processOutputStep({ abort, retryCount }) { abort(`not good enough (${retryCount})`, { retry: true }); } };

export function conformanceAgents(scenarios, kit) {
  const { agent, scripted, memory, scorers } = kit;
  const tools = { ...kit.tools, count };
  const processors = { ...kit.processors, 'block-questions': blockQuestions, 'no-rudeness': noRudeness, 'never-satisfied': neverSatisfied };
  const pick = (from, names) => Object.fromEntries((names ?? []).map(name => [name, from[name]]));
  const made = {};
  for (const scenario of scenarios) {
    const own = {};
    for (const [name, spec] of Object.entries(scenario.agents).reverse()) { // sub-agents stand below their callers
      const id = agentId(scenario, name);
      const extra = { tools: pick(tools, spec.tools), agents: pick(own, spec.agents) };
      if (spec.description) extra.description = spec.description;
      if (spec.memory) extra.memory = memory;
      if (spec.inputProcessors) extra.inputProcessors = spec.inputProcessors.map(p => processors[p]);
      if (spec.outputProcessors) extra.outputProcessors = spec.outputProcessors.map(p => processors[p]);
      if (spec.maxProcessorRetries) extra.maxProcessorRetries = spec.maxProcessorRetries;
      if (spec.goal) {
        const scorer = scorers[spec.goal.scorer];
        extra.goal = { judge: scripted([kit.finish('stop', kit.usage(1, 1))]), maxRuns: spec.goal.maxRuns, scorer };
      }
      if (spec.isTaskComplete) extra.defaultOptions = { isTaskComplete: { scorers: [scorers[spec.isTaskComplete.scorer]] } };
      own[name] = agent(id, scripted(...spec.script.map(parts => turn(parts, kit))), extra);
      made[id] = own[name];
    }
  }
  return made;
}

export async function setObjectives(mastra, scenarios) {
  for (const scenario of scenarios) {
    for (const [name, spec] of Object.entries(scenario.agents)) {
      if (!spec.goal) continue;
      const thread = { threadId: `cf-${scenario.id}`, resourceId: 'u1' };
      await mastra.getAgent(agentId(scenario, name)).setObjective(spec.goal.objective, thread);
    }
  }
}
