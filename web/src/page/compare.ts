/** Whether two images show one person. */
import type { Face, Verification } from "../types";
import type { Card } from "./card";
import { aligned } from "./controls";
import { el, make, message, number, percent } from "./dom";
import { drawCrop } from "./faces";
import { matching, type PageModel, type PageScorer } from "./model";

const DECISIONS = {
  same: ["yes", "✓ Same person"],
  different: ["no", "✕ Different people"],
  inconclusive: ["", "Not enough quality to say"],
} as const;

const select = (id: string): HTMLSelectElement => el<HTMLSelectElement>(id);

/** Offer to compare the images on the page. */
export function showCompare(cards: Card[], model: PageModel | null): void {
  clearVerdict();
  el("compare").hidden = cards.length < 2 || model?.recognizer == null || model.fmr === null;
  ["first", "second"].forEach((id, place) => {
    const before = select(id).value;
    select(id).replaceChildren(...cards.map((card, index) => make("option", { value: card.id, selected: index === place }, card.name)));
    if (cards.some((card) => card.id === before)) select(id).value = before;
  });
  if (model) {
    const chosen = select("fmr").value || String(model.fmr);
    select("fmr").replaceChildren(...Object.keys(matching(model)?.thresholds ?? {}).map((rate) =>
      make("option", { value: rate, selected: +rate === +chosen }, `1 in ${Math.round(1 / +rate).toLocaleString("en")}`)));
  }
}

export function clearVerdict(): void {
  el("verdict").replaceChildren();
}

/** Compare the two images that are chosen. */
export async function compare(cards: Card[], scorer: PageScorer): Promise<void> {
  const [first, second] = ["first", "second"].map((id) => cards.find((card) => card.id === select(id).value));
  if (!first || !second) return;
  el("verdict").replaceChildren(make("p", { className: "quiet" }, "comparing …"));
  let answer: Verification;
  try {
    answer = await scorer.verify(first.file, second.file, { ...aligned(scorer.model), fmr: +select("fmr").value });
  } catch (error) {
    el("verdict").replaceChildren(make("p", { className: "problem" }, message(error)));
    return;
  }
  const crops = await Promise.all([first, second].map((card, place) => cropOf(card, answer.images[place]?.faces[0], scorer.model)));
  const [look, words] = DECISIONS[answer.decision];
  const missed = answer.fnmr === null ? "" : `; of the calibration's pairs of one person, ${percent(answer.fnmr)} fall below it`;
  el("verdict").replaceChildren(...crops, make("div", { className: look },
    make("p", { className: "decision" }, words),
    make("p", {}, `Similarity ${number(answer.similarity)}. Faces match from ${number(answer.threshold)}${missed}.`),
    ...[answer.reason, answer.note].map((text) => text && make("p", { className: "quiet" }, text))));
}

async function cropOf(card: Card, face: Face | undefined, model: PageModel): Promise<Node> {
  const canvas = make("canvas", { width: model.template_size, height: model.template_size, role: "img", ariaLabel: card.name });
  const pixels = face && await createImageBitmap(card.file).catch(() => null);
  if (pixels) drawCrop(canvas, pixels, face, model);
  pixels?.close();
  return canvas;
}
