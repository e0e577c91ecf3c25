/** The worker: loads the runtime and the models, and reads one image after another. */
import { startRuntime } from "./engine/network";
import { LocalScorer } from "./engine/scorer";
import type { Site } from "./engine/site";
import type { Answer, Request } from "./messages";

const running = new Map<number, AbortController>();
let scorer: Promise<LocalScorer> | undefined;
// The runtime runs one pass at a time.
let last: Promise<unknown> = Promise.resolve();

async function open({ base, quality, threads }: Extract<Request, { kind: "load" }>): Promise<LocalScorer> {
  const answer = async (file: string) => {
    const response = await fetch(new URL(file, base));
    if (!response.ok) throw new Error(`${new URL(file, base)}: ${response.status} ${response.statusText}`);
    return response;
  };
  const site = (await (await answer("facerts.json")).json()) as Site;
  const wasm = await unpacked(await (await answer(site.runtime.wasm)).arrayBuffer());
  startRuntime({ glue: new URL(site.runtime.glue, base).href, wasm, threads });
  const opened = new LocalScorer(site, async (file) => (await answer(file)).arrayBuffer(), quality);
  await opened.warm();
  return opened;
}

/** Some servers take a name in .gz for an encoding, and the browser has unpacked it already. */
async function unpacked(content: ArrayBuffer): Promise<ArrayBuffer> {
  const [first, second] = new Uint8Array(content);
  if (first !== 0x1f || second !== 0x8b) return content;
  return new Response(new Blob([content]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

async function work(request: Exclude<Request, { kind: "cancel" }>, signal: AbortSignal): Promise<unknown> {
  if (request.kind === "load") return (await (scorer = open(request))).model;
  if (!scorer) throw new Error("no model is loaded");
  const opened = await scorer;
  signal.throwIfAborted();
  if (request.kind === "read") return opened.read(request.image, { ...request.options, signal });
  return opened.verify(request.first, request.second, { ...request.options, signal });
}

self.addEventListener("message", ({ data: request }: MessageEvent<Request>) => {
  if (request.kind === "cancel") {
    running.get(request.id)?.abort();
    return;
  }
  const { id } = request, control = new AbortController();
  running.set(id, control);
  const done = (answer: Answer) => {
    running.delete(id);
    postMessage(answer);
  };
  last = last.then(() => work(request, control.signal)).then(
    (value) => done({ id, value }),
    (error: Error) => done({ id, error: error.message }),
  );
});
