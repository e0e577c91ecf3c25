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
  const packed = (await answer(site.runtime.wasm)).body!;
  const wasm = await new Response(packed.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  startRuntime({ glue: new URL(site.runtime.glue, base).href, wasm, threads });
  const opened = new LocalScorer(site, async (file) => (await answer(file)).arrayBuffer(), quality);
  await opened.warm();
  return opened;
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
