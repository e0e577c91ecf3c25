/** Faces in images and how far to trust each, in this browser: nothing is sent anywhere. */
import type { Answer, Request } from "./messages";
import type { Face, ImageResult, ImageSource, ModelInfo, ScoreOptions, Scorer, Verification, VerifyOptions } from "./types";

export type * from "./types";

/** What is loaded, and from where. */
export interface LoadOptions {
  /** The folder that `facerts web` wrote; by default that of this module. */
  base?: string | URL | undefined;
  /** Name of the quality, one of `facerts.json`; by default its first. */
  quality?: string | undefined;
  /** Threads per forward pass, at most those of the machine; more than one only where the page is cross-origin isolated. */
  threads?: number | undefined;
}

type Content<Kind> = Kind extends { id: number } ? Omit<Kind, "id"> : never;

/** Messages to the worker, each with its answer. */
class Connection {
  private readonly worker: Worker;
  private readonly waiting = new Map<number, { resolve: (value: never) => void; reject: (error: Error) => void }>();
  private number = 0;

  constructor(address: URL) {
    this.worker = new Worker(address, { type: "module" });
    this.worker.addEventListener("message", ({ data }: MessageEvent<Answer>) => {
      const { resolve, reject } = this.waiting.get(data.id) ?? {};
      this.waiting.delete(data.id);
      "error" in data ? reject?.(new Error(data.error)) : resolve?.(data.value as never);
    });
    this.worker.addEventListener("error", (event) => this.close(event.message || `${address} cannot be loaded`));
  }

  ask<T>(request: Content<Request>, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    const id = this.number++;
    return new Promise<T>((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.worker.postMessage({ ...request, id });
      signal?.addEventListener("abort", () => {
        this.waiting.delete(id);
        this.worker.postMessage({ kind: "cancel", id });
        reject(signal.reason);
      }, { once: true });
    });
  }

  close(reason: string): void {
    this.worker.terminate();
    for (const { reject } of this.waiting.values()) reject(new Error(reason));
    this.waiting.clear();
  }
}

/** Reads images in a worker, so that the page stays alive: one after another, in the order in which they were given. */
export class Facerts implements Scorer {
  /** @internal */
  constructor(readonly model: ModelInfo, private readonly connection: Connection) {}

  /** The faces of an image, largest first; throws if the image cannot be read. */
  async score(image: ImageSource, options: ScoreOptions = {}): Promise<Face[]> {
    const result = await this.read(image, options);
    if (result.error !== null) throw new Error(result.error);
    return result.faces;
  }

  async read(image: ImageSource, { signal, ...options }: ScoreOptions = {}): Promise<ImageResult> {
    return this.connection.ask({ kind: "read", image, options }, signal);
  }

  async verify(first: ImageSource, second: ImageSource, { signal, ...options }: VerifyOptions = {}): Promise<Verification> {
    return this.connection.ask({ kind: "verify", first, second, options }, signal);
  }

  /** End the worker; what is still being read is rejected. */
  close(): void {
    this.connection.close("closed");
  }
}

/** Load the detector and the quality; the recognizer follows when two faces are first compared. */
export async function load({ base = new URL(".", import.meta.url), quality, threads }: LoadOptions = {}): Promise<Facerts> {
  const folder = new URL(base, document.baseURI), connection = new Connection(new URL("facerts-worker.js", folder));
  const most = globalThis.crossOriginIsolated ? navigator.hardwareConcurrency : 1;
  try {
    const model = await connection.ask<ModelInfo>({ kind: "load", base: folder.href, quality, threads: Math.min(threads ?? most, most) });
    return new Facerts(model, connection);
  } catch (error) {
    connection.close("not loaded");
    throw error;
  }
}
