/** The camera: the face in view with its verdict, and the best shot so far. */
import { el, message, number } from "./dom";
import { drawCrop, percentileInWords, placeBox, reasonsInWords } from "./faces";
import type { NamedFile } from "./files";
import type { PageScorer } from "./model";

const REFUSED: Record<string, string> = {
  NotAllowedError: "The browser does not allow the use of the camera.",
  NotFoundError: "There is no camera.",
  NotReadableError: "The camera is in use by another program.",
};

export class Camera {
  private stream: MediaStream | null = null;
  private readonly video = el<HTMLVideoElement>("video");
  private readonly frame = document.createElement("canvas");
  private best = -Infinity;
  private kept = 0;

  /**
   * @param scorer what reads frames; null while it is being loaded.
   * @param keep called with the best shot.
   */
  constructor(private readonly scorer: () => PageScorer | null, private readonly keep: (files: NamedFile[]) => void) {
    el("camera-open").hidden = !navigator.mediaDevices;
    el("camera-open").addEventListener("click", () => void this.start());
    el("camera-stop").addEventListener("click", () => this.stop());
    el("camera-keep").addEventListener("click", () => void this.keepBest());
    addEventListener("pagehide", () => this.stop());
  }

  async start(): Promise<void> {
    el("camera").hidden = false;
    if (this.stream) return;
    this.say("Waiting for the camera …");
    try {
      this.stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "user", width: { ideal: 1280 } } });
    } catch (error) {
      this.say(REFUSED[(error as Error).name] ?? message(error));
      return;
    }
    this.video.srcObject = this.stream;
    this.forget();
    el("camera-stop").focus();
    await this.video.play().catch(() => undefined);
    await this.watch(this.stream);
  }

  stop(): void {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.stream = this.video.srcObject = null;
    el("camera").hidden = true;
    el("live").hidden = true;
    el("camera-open").focus();
  }

  /** Read one frame after the other, as fast as the scorer can. */
  private async watch(stream: MediaStream): Promise<void> {
    while (this.stream === stream) {
      const scorer = this.scorer();
      if (!scorer || !this.video.videoWidth || document.hidden) {
        if (!scorer) this.say("Loading the models …");
        await new Promise((resolve) => setTimeout(resolve, 100));
        continue;
      }
      const shot = await createImageBitmap(this.video);
      try {
        await this.look(shot, scorer);
      } catch (error) {
        this.say(message(error));
        await new Promise((resolve) => setTimeout(resolve, 1000));
      } finally {
        shot.close();
      }
    }
  }

  private async look(shot: ImageBitmap, scorer: PageScorer): Promise<void> {
    // The scorer may take the bitmap away; the canvas stays.
    Object.assign(this.frame, { width: shot.width, height: shot.height });
    this.frame.getContext("2d")?.drawImage(shot, 0, 0);
    const { faces, width, height } = await scorer.read(shot, { frame: true, largest: true });
    if (!this.stream) return;
    const [face] = faces;
    const box = el("live");
    box.hidden = !face?.box;
    if (!face) {
      this.say("No face in view.");
      return;
    }
    placeBox(box, face, width ?? this.frame.width, height ?? this.frame.height);
    box.className = `box ${face.accepted === null ? "" : face.accepted ? "yes" : "no"}`;
    const score = face.percentile === null ? `quality ${number(face.quality)}` : `percentile ${percentileInWords(face)}`;
    this.say([face.verdict, score, reasonsInWords(face, scorer.model)].filter(Boolean).join(" · "));
    if (face.verdict === "not a face" || face.quality === null || face.quality <= this.best) return;
    this.best = face.quality;
    const shown = el<HTMLCanvasElement>("best");
    Object.assign(shown, { width: this.frame.width, height: this.frame.height });
    shown.getContext("2d")?.drawImage(this.frame, 0, 0);
    const crop = el<HTMLCanvasElement>("best-crop");
    crop.getContext("2d")?.clearRect(0, 0, crop.width, crop.height);
    drawCrop(crop, this.frame, face, scorer.model);
    el("best-line").textContent = `Best shot so far: ${score}`;
    el("best-shot").hidden = false;
  }

  private async keepBest(): Promise<void> {
    const blob = await new Promise<Blob | null>((resolve) => el<HTMLCanvasElement>("best").toBlob(resolve, "image/png"));
    if (!blob) return;
    const name = `camera ${++this.kept}.png`;
    this.forget();
    this.keep([{ name, file: new File([blob], name, { type: "image/png" }) }]);
  }

  private forget(): void {
    this.best = -Infinity;
    el("best-shot").hidden = true;
  }

  private say(text: string): void {
    el("camera-line").textContent = text;
  }
}
