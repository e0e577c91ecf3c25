/** Which faces are accepted, and how images are read. */
import { qualityAt } from "../engine/rows";
import type { ScoreOptions } from "../types";
import { el, make, percent } from "./dom";
import { matching, ownQuality, ownShare, ownThreshold, quantiles, thresholds, type PageModel } from "./model";

const accept = (): HTMLSelectElement => el<HTMLSelectElement>("accept");
const minimum = (): HTMLInputElement => el<HTMLInputElement>("min");
const fromPercentile = (share: string): string => `from percentile ${+(100 - 100 * +share).toPrecision(3)}`;

/** The own threshold, if there is one; otherwise that which keeps 95% of good faces. */
export function showControls(model: PageModel): void {
  const own = ownThreshold(model) !== null, share = ownShare(model);
  const name = share ? fromPercentile(share) : "good faces";
  const choices = [make("option", { value: "" }, own ? `${name} (default${model.gallery ? " of searches" : ""})` : "every face")];
  if (model.quality) {
    for (const other of Object.keys(thresholds(model))) {
      if (own && other === share) continue;
      const preset = !own && other === "0.95";
      choices.push(make("option", { value: other, selected: preset }, `${fromPercentile(other)}${preset ? " (default)" : ""}`));
    }
    // Percentiles are easier to choose than qualities, but only calibrated models have them.
    const calibrated = quantiles(model).length > 0;
    choices.push(make("option", { value: "min" }, calibrated ? "from another percentile …" : "a minimum quality …"));
    minimum().placeholder = calibrated ? "0 to 100" : "";
    minimum().ariaLabel = calibrated ? "Lowest percentile, 0 to 100" : "Minimum quality";
  }
  accept().replaceChildren(...choices);
  el("crops").hidden = model.detector === null;
  showHint(model);
}

/** What rejecting gains: the false non-match rate among pairs of accepted faces. */
export function showHint(model: PageModel): void {
  el("at-least").hidden = accept().value !== "min";
  const at = ownQuality(model) ? matching(model)?.thresholds["0.001"] : undefined;
  const fnmr = at?.kept[accept().value]?.fnmr ?? null;
  el("hint").textContent = at && fnmr !== null
    ? `At one false match in 1,000, this lowers missed matches from ${percent(at.fnmr)} to ${percent(fnmr)} on the calibration faces.`
    : "";
}

/** The quality from which faces are accepted; null for no decision. */
export function threshold(model: PageModel): number | null {
  const value = accept().value;
  if (value !== "min") return value === "" ? ownThreshold(model) : thresholds(model)[value]?.quality ?? null;
  if (minimum().value === "") return ownThreshold(model);
  return quantiles(model).length ? qualityAt(+minimum().value, quantiles(model)) : +minimum().value;
}

/** The share of good faces that the threshold keeps, if it is one of the model's. */
export function keptShare(model: PageModel): string | undefined {
  const share = accept().value === "" ? ownShare(model) : accept().value;
  return share !== undefined && share in thresholds(model) ? share : undefined;
}

/** Images of a scorer with a detector are treated as aligned crops only if the user says so. */
export const aligned = (model: PageModel): { aligned?: true } =>
  el<HTMLInputElement>("aligned").checked && model.detector !== null ? { aligned: true } : {};

export function options(model: PageModel): ScoreOptions {
  const value = accept().value;
  return {
    ...aligned(model),
    ...(el<HTMLInputElement>("largest").checked ? { largest: true } : {}),
    ...(value === "min" && minimum().value !== "" ? { min_quality: threshold(model) ?? undefined } : {}),
    ...(value !== "" && value !== "min" ? { keep: +value } : {}),
  };
}
