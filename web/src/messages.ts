/** Between the page and the worker. */
import type { ImageSource, ScoreOptions, VerifyOptions } from "./types";

type Plain<Options> = Omit<Options, "signal">;

export type Request = { id: number } & (
  | { kind: "load"; base: string; quality: string | undefined; threads: number }
  | { kind: "read"; image: ImageSource; options: Plain<ScoreOptions> }
  | { kind: "verify"; first: ImageSource; second: ImageSource; options: Plain<VerifyOptions> }
  | { kind: "cancel" }
);

export type Answer = { id: number } & ({ value: unknown } | { error: string });
