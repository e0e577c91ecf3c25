/** The page, over whatever scores: this browser or a service. */
import { showAbout } from "./about";
import { Camera } from "./camera";
import { Card } from "./card";
import { clearVerdict, compare, showCompare } from "./compare";
import { showControls, showHint, threshold } from "./controls";
import { toCsv } from "./csv";
import { download, el, make, plural } from "./dom";
import { chosen, transferred, type NamedFile } from "./files";
import type { PageModel, PageScorer } from "./model";
import { Queue } from "./queue";

/** From this many images on, the progress is shown. */
const MANY = 3;

export class Page {
  private scorer: PageScorer | null = null;
  private cards: Card[] = [];
  private readonly queue = new Queue(() => this.showProgress());

  constructor() {
    for (const id of ["files", "folder"]) {
      const input = el<HTMLInputElement>(id);
      input.addEventListener("change", () => {
        this.add(...chosen(input.files ?? []));
        input.value = "";
      });
    }
    this.listenForDrops();
    for (const id of ["accept", "min", "largest", "aligned"])
      el(id).addEventListener("change", () => {
        if (!this.scorer) return;
        showHint(this.scorer.model);
        this.rescore();
      });
    el("sort").addEventListener("change", () => this.sort());
    el("cancel").addEventListener("click", () => this.queue.cancel());
    el("compare-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.scorer) void compare(this.cards, this.scorer);
    });
    for (const id of ["first", "second", "fmr"]) el(id).addEventListener("change", clearVerdict);
    el("clear").addEventListener("click", () => this.clear());
    el("json").addEventListener("click", () => this.saveJson());
    el("csv").addEventListener("click", () => this.saveCsv());
  }

  /** Score with this from now on, also what waits for it. */
  use(scorer: PageScorer): void {
    this.scorer = scorer;
    showControls(scorer.model);
    showAbout(scorer.model);
    el("about").hidden = false;
    showCompare(this.cards, scorer.model);
    this.rescore();
  }

  /** Say what keeps the page from scoring, or nothing. */
  say(text: string): void {
    el("hint").textContent = text;
  }

  /** Offer the camera. */
  withCamera(): void {
    new Camera(() => this.scorer, (files) => this.add(files));
  }

  /** Add images to the page.
   *
   * @param others number of files that are no images, and were left out.
   */
  add(files: NamedFile[], others = 0): void {
    el("left-out").textContent = others ? `${plural(others, "other file")} left out.` : "";
    if (!files.length) return;
    el("drop").classList.add("small");
    const added = files.map((file) => new Card(file, (card) => this.remove(card)));
    this.cards.push(...added);
    el("results").append(...added.map((card) => card.node));
    this.changed();
    for (const card of added) this.score(card);
  }

  private listenForDrops(): void {
    let inside = 0;
    const over = (by: number): void => {
      inside = by ? Math.max(0, inside + by) : 0;
      el("drop").classList.toggle("over", inside > 0);
    };
    document.addEventListener("dragenter", (event) => {
      event.preventDefault();
      over(1);
    });
    document.addEventListener("dragleave", () => over(-1));
    document.addEventListener("dragover", (event) => event.preventDefault());
    const take = async (data: DataTransfer | null): Promise<void> => {
      if (data) this.add(...await transferred(data));
    };
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      over(0);
      void take(event.dataTransfer);
    });
    document.addEventListener("paste", (event) => {
      if (event.clipboardData?.files.length) void take(event.clipboardData);
    });
  }

  private remove(card: Card): void {
    card.remove();
    this.cards = this.cards.filter((other) => other !== card);
    this.changed();
    el("files").focus();
  }

  private clear(): void {
    for (const card of this.cards) card.remove();
    this.cards = [];
    this.queue.cancel();
    this.changed();
    el("left-out").textContent = "";
    el("drop").classList.remove("small");
    el("files").focus();
  }

  /** Show what depends on which images there are. */
  private changed(): void {
    el("end").hidden = this.cards.length === 0;
    el("sorting").hidden = this.cards.length < 2;
    showCompare(this.cards, this.scorer?.model ?? null);
  }

  private rescore(): void {
    for (const card of this.cards) this.score(card);
  }

  private score(card: Card): void {
    const { scorer } = this, signal = card.wait();
    if (scorer) this.queue.add(signal, () => card.score(scorer, signal), () => card.dropped());
  }

  private showProgress(): void {
    const { queue } = this;
    el("progress").hidden = queue.idle || queue.total < MANY;
    Object.assign(el("bar"), { max: queue.total, value: queue.done });
    const left = queue.left;
    el("progress-line").textContent = `${queue.done.toLocaleString("en")} of ${queue.total.toLocaleString("en")}${
      left === null ? "" : `, ${duration(left)} left`}`;
    if (!queue.idle || !this.cards.length) return;
    this.sort();
    const failed = this.cards.filter((card) => card.result?.error).length;
    const [only] = this.cards;
    el("status").textContent = this.cards.length === 1 && only ? only.summary
      : `${plural(this.cards.filter((card) => card.result).length, "image")} scored${failed ? `, ${failed} could not be read` : ""}.`;
  }

  /** In the chosen order; images without a face come last. */
  private sort(): void {
    const order = el<HTMLSelectElement>("sort").value;
    const sign = order === "best" ? -1 : 1;
    const quality = (card: Card): number => order === "added" ? +card.id : card.quality === null ? Infinity : sign * card.quality;
    const rank = (one: Card, other: Card): number => quality(one) < quality(other) ? -1 : +(quality(one) > quality(other));
    const results = el("results"), focused = document.activeElement;
    this.cards.sort(rank);
    this.cards.forEach(({ node }, index) => {
      if (results.children[index] !== node) results.insertBefore(node, results.children[index] ?? null);
    });
    // An element that is moved loses the focus.
    if (focused instanceof HTMLElement && focused !== document.activeElement) focused.focus({ preventScroll: true });
  }

  private saveJson(): void {
    const model: PageModel | undefined = this.scorer?.model;
    const part = (of: PageModel["quality"] | undefined) => of ? { name: of.name, sha256: of.sha256 } : null;
    const images = this.cards.map((card) => card.result ?? { name: card.name, error: "not scored" });
    const saved = {
      quality: part(model?.quality), recognizer: part(model?.recognizer), min_quality: model ? threshold(model) : null,
      gallery: model?.gallery ?? undefined, images,
    };
    download("faces.json", "application/json", JSON.stringify(saved, null, 1));
  }

  private saveCsv(): void {
    const model = this.scorer?.model;
    if (!model) return;
    const results = this.cards.flatMap(({ name, result }) => result ? [{ name, result }] : []);
    const sha256 = (model.quality ?? model.recognizer)?.sha256 ?? "";
    download("faces.csv", "text/csv", toCsv(results, model.columns, sha256, threshold(model) !== null));
  }
}

const duration = (seconds: number): string => seconds < 90 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`;

/** Offer a choice among several, and call back with the chosen one. */
export function offer(names: string[], use: (name: string) => void): void {
  const select = el<HTMLSelectElement>("quality");
  select.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
  el("qualities").hidden = names.length < 2;
  select.addEventListener("change", () => use(select.value));
}
