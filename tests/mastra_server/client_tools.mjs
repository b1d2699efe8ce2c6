// Agents whose tools the caller runs, alone and beside tools of the server. Their last step says what the model was told
// of the results, so that a test, or a notebook, sees what arrived.
import { simulateReadableStream, MockLanguageModelV2 } from 'ai/test';

export const clientToolAgents = ({ agent, text, reasoning, call, finish, usage, memory, tools }) => {
  const sinceUser = prompt => prompt.slice(prompt.map(m => m.role).lastIndexOf('user') + 1);
  const told = prompt => sinceUser(prompt).filter(m => m.role === 'tool').flatMap(m => m.content)
    .map(({ toolCallId, output }) => ({ id: toolCallId, output }));
  const say = prompt => [...text('t1', JSON.stringify(told(prompt)), 40), finish('stop', usage(9, 2))];
  const asks = (...calls) => () => [...calls.flatMap(args => call(...args)), finish('tool-calls', usage(7, 3))];
  // As `scripted`, but every step is a function of the prompt, and over when a call of it is answered: without a
  // thread, a server joins the assistant messages of a history that it is given, so they can't be counted.
  const model = (...turns) => new MockLanguageModelV2({ modelId: 'scripted-1', provider: 'scripted',
    doStream: async ({ prompt }) => {
      const answered = told(prompt).map(result => result.id);
      const open = turn => { const calls = turn(prompt).filter(p => p.type === 'tool-call');
        return !calls.some(p => answered.includes(p.toolCallId)); };
      const k = turns.findIndex(open);
      return { stream: simulateReadableStream({ initialDelayInMs: 1, chunkDelayInMs: 1, chunks: [
        { type: 'stream-start', warnings: [] },
        { type: 'response-metadata', id: `resp-${k}`, modelId: 'scripted-1', timestamp: new Date(0) },
        ...turns.at(k)(prompt)] }) };
    } });
  const head = (id, rows) => [id, 'head_of_table', { rows }];
  // What an analyst would do: look at the columns, ask for a statistic, answer with its number.
  const value = (prompt, id) => told(prompt).find(result => result.id === id)?.output?.value;
  const analyst = model(
    asks(['c1', 'columns', {}]),
    prompt => {
      const numbers = (value(prompt, 'c1') ?? []).filter(column => column.kind === 'number').map(column => column.name);
      return [...text('n1', `I will compare the stations by ${numbers[0]}.`, 12),
        ...call('c2', 'mean_by', { group: 'station', column: numbers[0] }), finish('tool-calls', usage(60, 14))]; },
    prompt => {
      const rows = [...(value(prompt, 'c2') ?? [])].sort((a, b) => b.mean - a.mean);
      const table = rows.map(row => `| ${row.station} | ${row.mean.toFixed(1)} |`).join('\n');
      return [...text('t2', `**${rows[0]?.station}** has the highest mean.\n\n| station | mean |\n|---|---|\n${table}\n`, 12),
        finish('stop', usage(95, 30))]; });
  const made = {
    'client-echo': [{}, model(asks(head('k1', 2)), say)],
    'client-memory': [{ memory }, model(asks(head('k1', 2)), say)],
    'client-parallel': [{}, model(asks(head('k1', 2), head('k2', 3)), say)],
    'client-mixed': [{ tools: { weather: tools.weather } }, model(asks(['c1', 'weather', { city: 'Paris' }], head('k1', 2)), say)],
    'client-mixed-memory': [{ memory, tools: { weather: tools.weather } },
      model(asks(['c1', 'weather', { city: 'Paris' }], head('k1', 2)), say)],
    'client-turns': [{ tools: { weather: tools.weather } },
      model(asks(['c1', 'weather', { city: 'Paris' }]), asks(head('k1', 2)), asks(head('k2', 3)), say)],
    'client-endless': [{}, model(prompt => asks(head(`k${told(prompt).length + 1}`, 2))())],
    'client-thinks': [{}, model(() => [...reasoning('r0', 'I need the table.', { anthropic: { signature: 'c2ln' } }),
      ...text('n0', 'Let me look.'), ...call(...head('k1', 2)), finish('tool-calls', usage(7, 3))],
      prompt => [...text('t1', JSON.stringify(sinceUser(prompt)), 60), finish('stop', usage(9, 2))])],
    'client-bad-args': [{}, model(() => [...call('k1', 'head_of_table', null, '{"rows":2}<|call|>'), finish('tool-calls', usage(7, 3))], say)],
    'client-wrong-args': [{}, model(asks(['k1', 'head_of_table', { rows: 'many' }]), say)],
    'client-unknown': [{}, model(asks(['u1', 'no_such_tool', {}], head('k1', 2)), say)],
    'client-after-approval': [{ memory, tools: { deploy: tools.deploy } },
      model(asks(['a1', 'deploy', { target: 'prod' }]), asks(head('k1', 2)), say)],
    'client-background': [{ memory, tools: { research: tools.research } },
      model(asks(['b1', 'research', { topic: 'solana' }], head('k1', 2)), say)],
    analyst: [{}, analyst],
  };
  return Object.fromEntries(Object.entries(made).map(([id, [extra, llm]]) => [id, agent(id, llm, extra)]));
};
