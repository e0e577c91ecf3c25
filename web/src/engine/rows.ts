/** Outputs to the numbers of a face; see `facerts.scoring.row_builder` and `facerts.onnx.contract`. */
import type { Description, Threshold } from "../types";

/** The percentage of the calibration faces with lower quality. */
export function percentile(quality: number, quantiles: number[]): number | null {
  if (!quantiles.length) return null;
  const index = firstAtLeast(quantiles, quality);
  if (index === 0 || index === quantiles.length) return index === 0 ? 0 : 100;
  const [low, high] = [quantiles[index - 1]!, quantiles[index]!];
  return places(index - 1 + (quality - low) / (high - low), 2);
}

/** The quality that keeps a share of good faces. */
export function thresholdAt(keep: number, description: Description): number {
  const listed = shareOf(keep, description.thresholds);
  if (listed !== undefined) return description.thresholds[listed]!.quality;
  const quantiles = description.calibration?.quantiles ?? [];
  if (!(keep >= 0 && keep <= 1)) throw new Error(`${keep} is no share of the faces; give a number from 0 to 1, such as 0.95`);
  if (!quantiles.length) throw new Error(`${description.name} has no threshold that keeps ${keep} of the faces`);
  return qualityAt(100 * (1 - keep), quantiles);
}

/** The quality that a percentage of the calibration faces do not reach. */
export function qualityAt(percentile: number, quantiles: number[]): number {
  const index = Math.max(0, Math.min(Math.trunc(percentile), quantiles.length - 2));
  return quantiles[index]! + (percentile - index) * (quantiles[index + 1]! - quantiles[index]!);
}

/** A number as the keys of a description write it; undefined if it does not have it. */
export const shareOf = (share: number, listed: Record<string, unknown>): string | undefined =>
  Object.keys(listed).find((name) => Math.abs(Number(name) - share) <= 1e-9 * Math.max(Number(name), share));

/** The quality from which faces are accepted; null for no decision. */
export function minQuality({ keep, min_quality }: Threshold, description: Description | null, usual: number | null): number | null {
  if (keep !== undefined && min_quality !== undefined) throw new Error("min_quality and keep both set the threshold; give only one");
  if (min_quality !== undefined) return min_quality;
  if (keep === "none") return null;
  if (keep === undefined) return usual;
  if (description === null) throw new Error("there is no quality to accept faces by");
  return thresholdAt(keep, description);
}

/** To so many decimal places. */
export const places = (value: number, count: number): number => Number(value.toFixed(count));

/** The shortest decimal of a float32 value; plain conversion adds digits that mean nothing. */
export function shortest(value: number): number {
  const single = Math.fround(value);
  for (let digits = 6; digits < 9; digits++) {
    const decimal = Number(single.toPrecision(digits));
    if (Math.fround(decimal) === single) return decimal;
  }
  return Number(single.toPrecision(9));
}

/** Index of the first of ascending numbers that is not below a value. */
function firstAtLeast(numbers: number[], value: number): number {
  const index = numbers.findIndex((number) => number >= value);
  return index < 0 ? numbers.length : index;
}
