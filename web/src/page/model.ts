/** What the page knows of the model: beside what every scorer says, a service's gallery and limits. */
import type { Face, ModelInfo, Scorer } from "../types";

export interface Gallery {
  people: number;
  images: number;
  fpir: number;
  threshold: number;
  min_quality: number | null;
}

export interface Limits {
  bytes: number;
  pixels: number;
  images: number;
  faces: number;
}

export interface PageModel extends ModelInfo {
  gallery?: Gallery | null;
  limits?: Limits;
}

export interface PageScorer extends Scorer {
  readonly model: PageModel;
}

/** A face, and with a gallery who it is. */
export interface PageFace extends Face {
  decision?: string;
  candidates?: { person: string; cosine: number }[];
}

/** The threshold where nothing is chosen, which is another where faces are searched for in a gallery. */
export const ownThreshold = (model: PageModel): number | null => (model.gallery ?? model).min_quality;

export const thresholds = (model: PageModel): Record<string, { quality: number }> => model.quality?.description.thresholds ?? {};

/** The share of good faces that the own threshold keeps, as the model lists it. */
export const ownShare = (model: PageModel): string | undefined =>
  Object.entries(thresholds(model)).find(([, chosen]) => chosen.quality === ownThreshold(model))?.[0];

export const quantiles = (model: PageModel): number[] => model.quality?.description.calibration?.quantiles ?? [];

/** The model's match thresholds. */
export const matching = (model: PageModel) => model.recognizer?.description.calibration?.matching ?? null;

/** Whether the error rates of pairs of good faces are known: they are for the recognizer's own quality. */
export const ownQuality = (model: PageModel): boolean => model.quality !== null && model.quality.sha256 === model.recognizer?.sha256;
