/** Models in ONNX Runtime. */
import * as ort from "onnxruntime-web/wasm";
import { type Pixels, resizeLinear } from "./pixels";
import type { Description } from "../types";

/** Where the runtime is, and how it computes. */
export interface RuntimeOptions {
  glue: string;
  wasm: ArrayBuffer;
  threads: number;
}

/** Must be called once, before the first network is opened. */
export function startRuntime({ glue, wasm, threads }: RuntimeOptions): void {
  Object.assign(ort.env.wasm, { wasmPaths: { mjs: glue }, wasmBinary: wasm, numThreads: threads, proxy: false });
  ort.env.logLevel = "error";
}

/** A network with one input of floats. */
export class Network {
  private constructor(private readonly session: ort.InferenceSession, private readonly input: string) {}

  static async open(content: ArrayBuffer, input?: string): Promise<Network> {
    // Inputs vary in size, so a plan of the memory for one is none for the next.
    const session = await ort.InferenceSession.create(content, { executionProviders: ["wasm"], enableMemPattern: false });
    return new Network(session, input ?? session.inputNames[0]!);
  }

  /** All outputs by name, or those that are named. */
  async run(values: Float32Array, shape: number[], names?: string[]): Promise<Record<string, Float32Array>> {
    const tensor = new ort.Tensor("float32", values, shape);
    const outputs = await (names ? this.session.run({ [this.input]: tensor }, names) : this.session.run({ [this.input]: tensor }));
    return Object.fromEntries(Object.entries(outputs).map(([name, output]) => [name, Float32Array.from(output.data as Float32Array)]));
  }

  async close(): Promise<void> {
    await this.session.release();
  }
}

/** What a model says of a crop, by role. */
export type CropOutputs = Record<string, Float32Array>;

/** A model of aligned crops, run as its description says; see `facerts.embedding.onnx_embedder`. */
export class CropModel {
  private readonly roles: Record<string, string>;

  constructor(private readonly network: Network, readonly description: Description) {
    this.roles = { ...description.outputs };
    if (description.quality.startsWith("output:")) this.roles["quality"] = description.quality.slice("output:".length);
  }

  static async open(content: ArrayBuffer, description: Description): Promise<CropModel> {
    return new CropModel(await Network.open(content, description.input.name), description);
  }

  async run(crop: Pixels): Promise<CropOutputs> {
    const { size: [height, width], layout, batch } = this.description.input;
    const one = toInput(crop, this.description), count = batch ?? 1;
    const values = new Float32Array(count * one.length);
    for (let at = 0; at < count; at++) values.set(one, at * one.length);
    const shape = layout === "NCHW" ? [count, 3, height, width] : [count, height, width, 3];
    const outputs = await this.network.run(values, shape, [...new Set(Object.values(this.roles))]);
    const first = (output: Float32Array) => output.subarray(0, output.length / count);
    const found = Object.fromEntries(Object.entries(this.roles).map(([role, name]) => [role, first(outputs[name]!)]));
    for (const [role, output] of Object.entries(found))
      if (!output.every(Number.isFinite)) throw new Error(`${this.description.name}: ${role} is not a finite number`);
    return found;
  }

  /** The quality, higher is better; null if the model has none. */
  quality(outputs: CropOutputs): number | null {
    const value = this.description.quality === "norm" ? this.norm(outputs) : (outputs["quality"]?.[0] ?? null);
    return value !== null && this.description.polarity === "lower_is_better" ? -value : value;
  }

  /** As the model's method defines it; without one, the quality with the other sign. */
  uncertainty(outputs: CropOutputs): number | null {
    const quality = this.quality(outputs);
    return outputs["uncertainty"]?.[0] ?? (quality === null ? null : -quality);
  }

  /** Of unit length. */
  embedding(outputs: CropOutputs): Float32Array {
    const embedding = outputs["embedding"]!;
    const length = Math.max(this.description.normalize_embedding ? norm(embedding) : 1, 1e-12);
    return embedding.map((value) => value / length);
  }

  private norm(outputs: CropOutputs): number | null {
    if (this.description.normalize_embedding && outputs["embedding"]) return norm(outputs["embedding"]);
    return outputs["norm"]?.[0] ?? null;
  }
}

const norm = (values: Float32Array): number => Math.fround(Math.sqrt(values.reduce((sum, value) => sum + value * value, 0)));

function toInput(crop: Pixels, { input: { size: [height, width], layout, color, mean, std } }: Description): Float32Array {
  if (crop.width !== width || crop.height !== height) crop = resizeLinear(crop, width, height);
  const count = width * height, values = new Float32Array(3 * count);
  for (let channel = 0; channel < 3; channel++) {
    const from = color === "RGB" ? channel : 2 - channel, scale = 1 / std[channel]!, shift = mean[channel]! / std[channel]!;
    for (let at = 0; at < count; at++)
      values[layout === "NCHW" ? channel * count + at : 3 * at + channel] = Math.fround(crop.data[4 * at + from]! * scale) - shift;
  }
  return values;
}
