/** The card of one image: its preview, and what was found in it. */
import type { ImageResult } from "../types";
import { make, message, plural } from "./dom";
import { faceTable } from "./faces";
import type { NamedFile } from "./files";
import type { PageModel, PageScorer } from "./model";
import { options } from "./controls";

/** Longest side in pixels of the image on the page, so that hundreds of photos fit into memory. */
const PREVIEW = 1200;

let made = 0;

export class Card {
  readonly id = String(++made);
  readonly name: string;
  readonly file: File;
  readonly node: HTMLElement;
  /** Null until it was scored. */
  result: ImageResult | null = null;
  private gone = new AbortController();
  private url = "";
  private readonly image = make("img", { alt: "", loading: "lazy", decoding: "async" });
  private readonly stage = make("div", { className: "stage", hidden: true }, this.image);
  private readonly side = make("div");
  private readonly line = make("span", { className: "quiet" });

  constructor({ name, file }: NamedFile, onRemove: (card: Card) => void) {
    this.name = name;
    this.file = file;
    const away = make("button", { type: "button", ariaLabel: `Remove ${name}`, title: `Remove ${name} from the page` }, "Remove");
    away.addEventListener("click", () => onRemove(this));
    this.node = make("article", { className: "card", ariaLabel: name },
      make("div", { className: "top" }, make("h2", {}, name), this.line, away),
      make("div", { className: "both" }, make("div", {}, this.stage), this.side));
  }

  /** Say that it waits; the signal is aborted when its result is no longer wanted. */
  wait(): AbortSignal {
    this.gone.abort();
    this.gone = new AbortController();
    this.node.classList.add("working");
    this.line.textContent = "waiting …";
    return this.gone.signal;
  }

  /** Say that it was cancelled before its turn. */
  dropped(): void {
    this.node.classList.remove("working");
    this.result = null;
    this.line.textContent = "not scored: cancelled";
    this.side.replaceChildren();
    this.stage.replaceChildren(this.image);
  }

  async score(scorer: PageScorer, signal: AbortSignal): Promise<void> {
    this.line.textContent = "scoring …";
    const pixels = await createImageBitmap(this.file).catch(() => null);
    try {
      if (pixels && !this.url) await this.preview(pixels);
      const result = await scorer.read(this.file, { ...options(scorer.model), signal }).catch((error: unknown) => failed(message(error)));
      if (signal.aborted) return;
      this.result = { ...result, name: this.name };
      this.node.classList.remove("working");
      this.show(this.result, pixels, scorer.model);
    } finally {
      pixels?.close();
    }
  }

  /** What was found, in a sentence. */
  get summary(): string {
    return `${this.name}: ${this.result?.error ?? this.line.textContent}`;
  }

  /** The quality of its best face; null without a face. */
  get quality(): number | null {
    const found = (this.result?.faces ?? []).map((face) => face.quality).filter((quality) => quality !== null);
    return found.length ? Math.max(...found) : null;
  }

  remove(): void {
    this.gone.abort();
    URL.revokeObjectURL(this.url);
    this.node.remove();
  }

  private async preview(pixels: ImageBitmap): Promise<void> {
    const { width, height } = pixels;
    const scale = Math.min(1, PREVIEW / Math.max(width, height));
    let shown: Blob = this.file;
    if (scale < 1) {
      const canvas = new OffscreenCanvas(Math.max(1, Math.round(scale * width)), Math.max(1, Math.round(scale * height)));
      const context = canvas.getContext("2d");
      if (context) {
        context.imageSmoothingQuality = "high";
        context.drawImage(pixels, 0, 0, canvas.width, canvas.height);
        shown = await canvas.convertToBlob({ type: "image/webp", quality: .9 });
      }
    }
    this.url = URL.createObjectURL(shown);
    Object.assign(this.image, { width, height, src: this.url });
    this.stage.style.setProperty("--aspect", String(width / height));
    this.stage.style.setProperty("--pixels", String(width));
    this.stage.hidden = false;
  }

  private show(result: ImageResult, pixels: ImageBitmap | null, model: PageModel): void {
    const { faces, found, width, height, error } = result;
    this.stage.replaceChildren(this.image);
    this.image.alt = this.name;
    if (error !== null) {
      this.line.textContent = "";
      this.side.replaceChildren(make("p", { className: "problem" }, error));
      return;
    }
    const parts = [plural(found, "face")];
    if (found > faces.length) parts.push(`largest ${faces.length} scored`);
    if (faces.some((face) => face.accepted !== null)) parts.push(`${faces.filter((face) => face.accepted).length} accepted`);
    parts.push(`${width} × ${height}`);
    this.line.textContent = parts.join(" · ");
    this.image.alt = `${this.name}, ${plural(found, "face")}`;
    this.side.replaceChildren(faces.length
      ? faceTable({ name: this.name, width: width ?? 1, height: height ?? 1, faces, pixels, stage: this.stage }, model)
      : make("p", { className: "none" }, "No face was found in this image."));
  }
}

const failed = (error: string): ImageResult => ({ name: null, width: null, height: null, found: 0, error, faces: [] });
