/** Images to faces, in this thread: the detector, the quality and the recognizer, each opened when it is first used. */
import type { Face, ImageResult, ImageSource, ModelInfo, ScoreOptions, Verification, VerifyOptions } from "../types";
import { align, fitCrop } from "./align";
import { decode } from "./decode";
import { type Detection, headPose } from "./detection";
import { CropModel, Network } from "./network";
import { PhotoSearch } from "./photo_search";
import { blank, type Pixels, rounded } from "./pixels";
import { cropReasons, detectionReasons, inOrder } from "./reasons";
import { minQuality, percentile, places, shareOf, shortest, thresholdAt } from "./rows";
import type { Site, SiteModel } from "./site";
import { YuNet } from "./yunet";

type Fetch = (file: string) => Promise<ArrayBuffer>;

export class LocalScorer {
  readonly model: ModelInfo;
  private readonly quality: SiteModel;
  private readonly cutoffs: [number, number] | null;
  private readonly opened = new Map<string, Promise<unknown>>();

  constructor(private readonly site: Site, private readonly fetch: Fetch, quality?: string) {
    const found = site.qualities.find(({ name }) => quality === undefined || name === quality);
    if (!found) throw new Error(`no quality ${quality}; there are ${site.qualities.map(({ name }) => name).join(", ")}`);
    this.quality = found;
    const { thresholds, calibration } = found.description, calibrated = calibration || shareOf(site.usable, thresholds);
    this.cutoffs = calibrated ? [thresholdAt(site.usable, found.description), thresholdAt(site.good, found.description)] : null;
    const part = ({ name, sha256, description }: SiteModel) => ({ name, sha256, description });
    this.model = {
      quality: part(found),
      recognizer: site.recognizer && part(site.recognizer),
      detector: site.detector.name,
      min_quality: this.cutoffs && this.cutoffs[0],
      fmr: this.defaultFmr(),
      template: site.template,
      template_size: site.template_size,
      columns: site.columns,
    };
  }

  /** Open the detector and the quality, and run them once: the first pass is slow. */
  async warm(): Promise<void> {
    const black = blank(this.site.template_size, this.site.template_size);
    await (await this.qualityModel()).run(black);
    await (await this.search()).find(black, true);
  }

  async read(image: ImageSource, options: ScoreOptions = {}): Promise<ImageResult> {
    const least = minQuality(options, this.quality.description, this.model.min_quality);
    return this.scored(image, options, least);
  }

  async verify(first: ImageSource, second: ImageSource, options: VerifyOptions = {}): Promise<Verification> {
    const { recognizer } = this.site;
    if (!recognizer) throw new Error("there is no recognizer, and faces cannot be compared; facerts web --recognizer NAME adds one");
    const matching = recognizer.description.calibration?.matching ?? null;
    const fmr = options.threshold === undefined ? (options.fmr ?? this.model.fmr) : null;
    const rate = fmr === null || !matching ? undefined : shareOf(fmr, matching.thresholds);
    if (options.threshold === undefined && rate === undefined)
      throw new Error(`${recognizer.name} has no match threshold for a false match rate of ${fmr}; it has ${Object.keys(matching?.thresholds ?? {}).join(", ") || "none"}`);
    const match = rate === undefined ? null : matching!.thresholds[rate]!, threshold = match?.similarity ?? options.threshold!;
    const least = minQuality(options, this.quality.description, this.model.min_quality);
    const read = (image: ImageSource, name: string) => this.scored(image, { ...options, largest: true, embeddings: true }, least, name);
    const images = [await read(first, "the first image"), await read(second, "the second image")] as const;
    for (const image of images) {
      if (image.error !== null) throw new Error(`${image.name}: ${image.error}`);
      if (!image.faces.length) throw new Error(`${image.name}: no face found`);
    }
    const [one, other] = images.map((image) => image.faces[0]!) as [Face, Face];
    const cosine = one.embedding!.reduce((sum, value, at) => sum + value * other.embedding![at]!, 0);
    const similarity = Math.max(-1, Math.min(1, cosine));
    const reasons = images.flatMap((image) => this.tooPoor(image, least));
    const notes = images.filter(({ found }) => found > 1).map(({ name, found }) => `${name}: ${found} faces, of which the largest is compared`);
    if (similarity > this.site.identical) notes.push("both images give the same embedding, so they are probably copies of one image");
    return {
      decision: reasons.length ? "inconclusive" : similarity >= threshold ? "same" : "different",
      similarity,
      reason: reasons.join("; ") || null,
      note: notes.join("; ") || null,
      fmr,
      threshold,
      fnmr: match?.fnmr ?? null,
      images: [images[0], images[1]],
    };
  }

  private async scored(image: ImageSource, options: ScoreOptions, least: number | null, name: string | null = nameOf(image)): Promise<ImageResult> {
    const result: ImageResult = { name, width: null, height: null, found: 0, error: null, faces: [] };
    try {
      const pixels = await decode(image, this.site), { width, height } = pixels;
      Object.assign(result, { width, height });
      options.signal?.throwIfAborted();
      const { template, template_size: size } = this.site;
      if (options.aligned ?? (width === size && height === size)) {
        const crop = fitCrop(pixels, size, this.site.min_crop_size);
        return { ...result, found: 1, faces: [await this.face(crop, null, cropReasons(crop, this.site.reasons), options, least)] };
      }
      const found = await (await this.search()).find(pixels, options.frame, options.signal);
      result.found = found.length;
      for (const detection of options.largest ? found.slice(0, 1) : found) {
        options.signal?.throwIfAborted();
        const crop = align(pixels, detection.points, template, size);
        const reasons = [...detectionReasons(detection, width, height, this.site), ...cropReasons(crop, this.site.reasons)];
        result.faces.push(await this.face(crop, detection, reasons, options, least));
      }
      return result;
    } catch (error) {
      options.signal?.throwIfAborted();
      return { ...result, error: (error as Error).message, faces: [] };
    }
  }

  private async face(crop: Pixels, detection: Detection | null, reasons: string[], { embeddings }: ScoreOptions, least: number | null): Promise<Face> {
    const { site, cutoffs } = this, model = await this.qualityModel(), outputs = await model.run(crop);
    const value = model.quality(outputs), uncertainty = model.uncertainty(outputs);
    const said = ["not_a_face", "covered"].find((reason) => (outputs[reason]?.[0] ?? 0) > 0);
    const why = inOrder([...reasons, ...(said ? [said] : [])], site.reasons), isNone = why.includes("not_a_face");
    const quality = value === null ? null : shortest(value);
    if (least !== null && quality === null) throw new Error(`${this.quality.name} has no quality, so faces cannot be accepted by quality`);
    const below = least !== null && quality! < least;
    const level = cutoffs === null || quality === null ? null : +(quality >= cutoffs[0]) + +(quality >= cutoffs[1]);
    return {
      box: detection && (detection.box.map(hundredths) as Face["box"]),
      points: detection && detection.points.map((point) => point.map(hundredths) as [number, number]),
      rotation: detection && detection.rotation,
      det_score: detection && places(detection.score, 4),
      pose: detection && (headPose(detection, site.head_fit).map((angle) => places(angle, 1)) as Face["pose"]),
      percentile: quality === null ? null : percentile(quality, this.quality.description.calibration?.quantiles ?? []),
      quality,
      uncertainty: uncertainty === null ? null : shortest(uncertainty),
      accepted: least === null ? null : !below && (!isNone || least === -Infinity),
      verdict: level === null ? null : isNone ? site.not_a_face : site.verdicts[level]!,
      reasons: below ? [...why, "below_threshold"] : why,
      embedding: embeddings ? await this.embedding(crop) : null,
    };
  }

  private async embedding(crop: Pixels): Promise<number[]> {
    const { recognizer } = this.site;
    if (!recognizer) throw new Error("there is no recognizer, and embeddings are needed here; facerts web --recognizer NAME adds one");
    const model = await this.once(recognizer.file, async (content) => CropModel.open(content, recognizer.description));
    return [...model.embedding(await model.run(crop))].map(shortest);
  }

  /** Why a face cannot be compared; nothing if it can. */
  private tooPoor({ name, faces: [face] }: ImageResult, least: number | null): string[] {
    const { accepted, reasons, percentile, quality } = face!;
    if (accepted === null ? !reasons.includes("not_a_face") : accepted) return [];
    if (reasons.includes("not_a_face")) return [`${name}: not a face`];
    const share = percentile === null ? "" : `percentile ${Math.trunc(percentile)}, `;
    return [`${name}: ${share}quality ${quality!.toFixed(3)} is below the minimum of ${least!.toFixed(3)}`];
  }

  private defaultFmr(): number | null {
    const rates = Object.keys(this.site.recognizer?.description.calibration?.matching?.thresholds ?? {}).map(Number);
    if (!rates.length) return null;
    return rates.includes(this.site.default_fmr) ? this.site.default_fmr : Math.min(...rates);
  }

  private qualityModel(): Promise<CropModel> {
    return this.once(this.quality.file, async (content) => CropModel.open(content, this.quality.description));
  }

  private search(): Promise<PhotoSearch> {
    const { detector } = this.site;
    return this.once(detector.file, async (content) => new PhotoSearch(new YuNet(await Network.open(content), detector)));
  }

  /** What is made of a file when it is first needed; after a failure the next call tries again. */
  private once<T>(file: string, open: (content: ArrayBuffer) => Promise<T>): Promise<T> {
    let opening = this.opened.get(file) as Promise<T> | undefined;
    if (!opening) {
      opening = this.fetch(file).then(open);
      this.opened.set(file, opening);
      opening.catch(() => this.opened.delete(file));
    }
    return opening;
  }
}

// As NumPy rounds.
const hundredths = (value: number): number => rounded(100 * value) / 100;

const nameOf = (image: ImageSource): string | null => (image instanceof File ? image.name : null);
