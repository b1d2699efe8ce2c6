// client-js reading a file of server-sent events, every chunk kept: with observe(), its fastest reader, or as
// agent.stream() does. Usage: node observe.mjs FILE NODE_MODULES [stream]; prints {chunks, seconds, cpu}.
import { closeSync, openSync, readSync } from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [, , file, modules, mode] = process.argv;
const entry = createRequire(`${modules}/`).resolve('@mastra/client-js');
const { MastraClient } = await import(pathToFileURL(entry));

const body = () => {
  const fd = openSync(file);
  return new ReadableStream({
    pull(controller) {
      const piece = new Uint8Array(16384);
      const size = readSync(fd, piece);
      if (size) controller.enqueue(piece.subarray(0, size));
      else { closeSync(fd); controller.close(); }
    } });
};
const fetch = async () => new Response(body(), { headers: { 'content-type': 'text/event-stream' } });
const client = new MastraClient({ baseUrl: 'http://localhost', retries: 0, fetch });
const kept = [];
const start = performance.now();
const agent = client.getAgent('agent');
const cpuBefore = process.cpuUsage();
const stream = mode === 'stream' ? await agent.stream('hi') : await agent.observe({ runId: 'run' });
await stream.processDataStream({ onChunk: async chunk => { kept.push(chunk); } });
const { user, system } = process.cpuUsage(cpuBefore);
const seconds = (performance.now() - start) / 1000;
console.log(JSON.stringify({ chunks: kept.length, seconds, cpu: (user + system) / 1e6 }));
process.exit(0);
