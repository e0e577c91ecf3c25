/** The faces of an image: boxes over it, and a table beside it. */
import { similarityTransform } from "../engine/align";
import type { Face } from "../types";
import { keptShare } from "./controls";
import { make, number, percent } from "./dom";
import type { PageFace, PageModel } from "./model";

// Columns that are shown in a form of their own, or left out; all others follow them.
const KNOWN = [
  ...["path", "face", "box", "points", "rotation", "det_score", "pose", "percentile", "quality", "uncertainty", "accepted"],
  ...["verdict", "reasons", "smaller_faces", "error", "model_sha256"],
];

/** What the rows and boxes of one image are made of. */
export interface Shown {
  name: string;
  width: number;
  height: number;
  faces: PageFace[];
  /** Its pixels at full size; null if the browser cannot read the file. */
  pixels: ImageBitmap | null;
  stage: HTMLElement;
}

const decision = (face: Face): string => face.accepted === null ? "" : face.accepted ? "yes" : "no";

/** The reasons as people read them; the threshold only where nothing else explains it. */
export function reasonsInWords(face: Face, model: PageModel): string {
  const others = face.reasons.filter((reason) => reason !== "below_threshold");
  const share = keptShare(model);
  const said = (others.length ? others : face.reasons).map((reason) => {
    if (reason === "below_threshold") return share ? `below the threshold that keeps ${percent(+share)}` : "below the threshold";
    if (reason === "turned" && face.pose) return `turned: yaw ${Math.round(Math.abs(face.pose[0]))}°`;
    return reason.replaceAll("_", " ");
  });
  return [...(face.rotation ? [`photo turned ${face.rotation}°`] : []), ...said].join(", ");
}

export const percentileInWords = (face: Face): string => face.percentile === null ? "" : number(Math.floor(face.percentile), 0);

/** The table of the faces of an image, whose boxes are drawn now. */
export function faceTable(shown: Shown, model: PageModel): HTMLElement {
  const { faces, name } = shown;
  const more = model.columns.filter((column) => !KNOWN.includes(column));
  const has = (field: "verdict" | "percentile" | "pose"): boolean => faces.some((face) => face[field] !== null);
  const decided = faces.some((face) => face.accepted !== null);
  const reasons = faces.some((face) => face.reasons.length);
  const column = (text: string, className = ""): Node => make("th", { scope: "col", className }, text);
  const head = make("tr", {}, column("Face"), make("th", { scope: "col" }, make("span", { className: "hidden" }, "Aligned crop")),
    model.gallery && column("Person", "left"),
    has("verdict") && column("Verdict", "left"),
    has("percentile") && column("Percentile", "left"),
    (decided || reasons) && column(decided ? "Decision" : "Reasons", "left"),
    has("pose") && make("th", { scope: "col", className: "wide", title: "Degrees" }, "Yaw, pitch, roll"),
    column("Quality", has("percentile") ? "wide" : ""),
    ...more.map((field) => column(field.replaceAll("_", " "), "wide")));
  const rows = faces.map((face, index) => {
    const pick = make("button", { type: "button", ariaLabel: `Show face ${index + 1} in the image` }, `${index + 1}`);
    const crop = make("canvas", { width: model.template_size, height: model.template_size, ariaHidden: "true" });
    if (shown.pixels) drawCrop(crop, shown.pixels, face, model);
    const cell = (className: string, ...content: (Node | string | null | false)[]): Node => make("td", { className }, ...content);
    const why = reasonsInWords(face, model);
    const node = make("tr", { className: decision(face) }, cell("", pick), cell("", crop),
      model.gallery && cell(`left who ${face.decision === "match" ? "" : "quiet"}`, person(face)),
      has("verdict") && cell("left", face.verdict ?? "–"),
      has("percentile") && cell("left", bar(face.percentile ?? 0), percentileInWords(face) || "–"),
      (decided || reasons) && cell("left",
        face.accepted !== null && make("span", { className: "decision" }, face.accepted ? "✓ accepted" : "✕ rejected"),
        why !== "" && make("span", { className: "why quiet" }, why)),
      has("pose") && cell("wide", face.pose ? face.pose.map((angle) => `${number(angle, 0)}°`).join(" ") : "–"),
      cell(has("percentile") ? "wide" : "", number(face.quality)),
      ...more.map((field) => cell("wide", plain((face as unknown as Record<string, unknown>)[field]))));
    connect(node, pick, face.box ? drawBox(shown, face, index) : null, shown.stage);
    return node;
  });
  return make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: `Faces of ${name}` },
    make("table", { className: model.gallery ? "people" : "" },
      make("caption", { className: "hidden" }, `Faces of ${name}`), make("thead", {}, head), make("tbody", {}, ...rows)));
}

const person = (face: PageFace): string =>
  face.decision === "match" ? `${face.candidates?.[0]?.person}, ${number(face.candidates?.[0]?.cosine ?? null, 2)}` : face.decision ?? "";

const plain = (value: unknown): string => typeof value === "number" ? number(value) : String(value ?? "–");

function bar(share: number): Node {
  const filled = make("i");
  filled.style.width = `${share}%`;
  return make("span", { className: "share", ariaHidden: "true" }, filled);
}

/** Row and box of a face light up together. */
function connect(row: HTMLElement, pick: HTMLElement, box: HTMLElement | null, stage: HTMLElement): void {
  const picked = (on: boolean): void => {
    row.classList.toggle("picked", on);
    box?.classList.toggle("picked", on);
    stage.classList.toggle("picking", on && box !== null);
  };
  for (const target of [row, box]) {
    target?.addEventListener("mouseenter", () => picked(true));
    target?.addEventListener("mouseleave", () => picked(document.activeElement === pick));
  }
  pick.addEventListener("focus", () => picked(true));
  pick.addEventListener("blur", () => picked(false));
  box?.addEventListener("click", () => {
    row.scrollIntoView({ block: "nearest" });
    pick.focus({ preventScroll: true });
  });
}

/** A box whose number is outside where it would hide the face, on the side that lies in the image. */
function drawBox({ width, height, stage }: Shown, face: Face, index: number): HTMLElement {
  const [left, top, right] = face.box ?? [0, 0, 0];
  const small = (right - left) / width * stage.clientWidth < 60;
  const box = make("div", { className: `box ${decision(face)}${small ? " small" : ""}${top / height < .06 ? " below" : ""}`, ariaHidden: "true" },
    make("i", {}, `${index + 1}`));
  placeBox(box, face, width, height);
  stage.append(box);
  return box;
}

/** Put an element over the face in an image of a size. */
export function placeBox(box: HTMLElement, face: Face, width: number, height: number): void {
  const [left, top, right, bottom] = face.box ?? [0, 0, 0, 0];
  Object.assign(box.style, {
    left: `${100 * left / width}%`, top: `${100 * top / height}%`,
    width: `${100 * (right - left) / width}%`, height: `${100 * (bottom - top) / height}%`,
  });
}

/** Draw an aligned crop. */
export function drawCrop(canvas: HTMLCanvasElement, image: ImageBitmap | HTMLCanvasElement, face: Face, model: PageModel): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  context.imageSmoothingQuality = "high";
  if (!face.points) {
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return;
  }
  const { real: a, imaginary: b, x, y } = similarityTransform(face.points, model.template);
  // Points count from the center of the first pixel, canvases from its corner.
  context.setTransform(a, b, -b, a, x + (1 - a + b) / 2, y + (1 - a - b) / 2);
  context.drawImage(image, 0, 0);
  context.resetTransform();
}
