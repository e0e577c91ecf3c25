/** Faces in images and how far to trust each, in this browser: nothing is sent anywhere. */
import type { Face, ImageResult, ImageSource, ModelInfo, ScoreOptions, Scorer, Verification, VerifyOptions } from "./types";

export type * from "./types";

/** What is loaded, and from where. */
export interface LoadOptions {
  /** The folder that `facerts web` wrote; by default that of this module. */
  base?: string | URL | undefined;
  /** Name of the quality, one of `facerts.json`; by default its first. */
  quality?: string | undefined;
  /** Threads per forward pass; more than one only where the page is cross-origin isolated. */
  threads?: number | undefined;
}

/** Reads images in a worker, so that the page stays alive. */
export class Facerts implements Scorer {
  constructor(readonly model: ModelInfo) {}

  /** The faces of an image, largest first. */
  async score(image: ImageSource, options: ScoreOptions = {}): Promise<Face[]> {
    const result = await this.read(image, options);
    if (result.error !== null) throw new Error(result.error);
    return result.faces;
  }

  async read(_image: ImageSource, _options: ScoreOptions = {}): Promise<ImageResult> {
    throw new Error("not yet");
  }

  async verify(_first: ImageSource, _second: ImageSource, _options: VerifyOptions = {}): Promise<Verification> {
    throw new Error("not yet");
  }

  /** End the worker. */
  close(): void {}
}

/** Load the models; later calls of `score` wait for nothing. */
export async function load(_options: LoadOptions = {}): Promise<Facerts> {
  throw new Error("not yet");
}
