/** Facts about the model, its thresholds and its error rates. */
import { el, make, number, percent, plural, table, type Child } from "./dom";
import { matching, ownQuality, thresholds, type PageModel } from "./model";

export function showAbout(model: PageModel): void {
  const { quality, recognizer, gallery, limits } = model;
  const parts = ownQuality(model) ? [["Model", recognizer] as const] : [["Quality", quality] as const, ["Recognizer", recognizer] as const];
  const list = make("dl");
  const add = (name: string, value: Child): void => {
    if (value) list.append(make("dt", {}, name), make("dd", {}, value));
  };
  for (const [name, part] of parts) {
    if (!part) continue;
    const { method, training_data, terms, license } = part.description;
    add(name, part.name);
    add("Method", method);
    add("Trained on", training_data);
    add("Terms", terms);
    add("License", license);
    add("SHA-256", part.sha256);
  }
  add("Detector", model.detector ?? "none: images must be aligned crops");
  add("Gallery", gallery && `${plural(gallery.people, "person", "people")}, ${plural(gallery.images, "image")}; a match from cosine ${
    number(gallery.threshold)}, which ${percent(gallery.fpir)} of strangers reach`);
  add("Limits", limits && `up to ${plural(limits.images, "image")} per request, ${(limits.pixels / 1e6).toFixed(0)} megapixels each, ${
    (limits.bytes / 1048576).toFixed(0)} MiB in total; up to ${plural(limits.faces, "face")} per image`);
  el("model-facts").replaceChildren(list, ...qualityTable(model), ...matchTable(model));
}

function qualityTable(model: PageModel): Node[] {
  const rows = Object.entries(thresholds(model)).map(([share, { quality }]) => [percent(+share), number(quality)]);
  return rows.length ? [note("Qualities that good faces reach."), table(["Share of good faces", "Reaches quality"], rows)] : [];
}

function matchTable(model: PageModel): Node[] {
  const known = matching(model);
  if (!known) return [];
  const shares = ownQuality(model) ? Object.keys(thresholds(model)) : [];
  const rows = Object.entries(known.thresholds).map(([rate, at]) => [
    rate, number(at.similarity), percent(at.fnmr),
    ...shares.map((share) => {
      const fnmr = at.kept[share]?.fnmr ?? null;
      return fnmr === null ? "–" : percent(fnmr);
    }),
  ]);
  return [
    note(`Error rates on ${known.images.toLocaleString("en")} images of ${known.data}: false non-match rate (FNMR) at a given false match rate (FMR). On your own faces they will differ.`),
    table(["FMR", "Cosine from", "FNMR", ...shares.map((share) => `of the best ${percent(+share)}`)], rows),
  ];
}

const note = (text: string): Node => make("p", { className: "quiet" }, text);
