/** The search of a photo of any size: at several scales, in tiles, and turned; see `facerts.detection.photo_search`. */
import { type Detection, largestFirst, moved, nms, type Point, sides, unturned } from "./detection";
import { blank, part, paste, type Pixels, resizeArea, resizeLinear, rounded, turned } from "./pixels";
import type { Detector } from "./site";
import type { YuNet } from "./yunet";

/** A photo at one of the scales, and the size of its pixels in pixels of the photo. */
interface Level {
  image: Pixels;
  pixel: Point;
  /** The largest side of a face that is found here, in pixels of the photo. */
  largest: number;
}

interface Candidate {
  face: Detection;
  pass: number;
  largest: number;
  tooLarge: boolean;
}

export class PhotoSearch {
  private readonly rules: Detector;

  constructor(private readonly network: YuNet) {
    this.rules = network.rules;
  }

  /** The faces in a photo, largest first; a frame of a video is searched in bounded time, and not turned. */
  async find(image: Pixels, frame = false, signal?: AbortSignal): Promise<Detection[]> {
    const levels = this.levels(image, frame);
    let faces = await this.at(levels, 0, signal);
    if (!frame && !(await this.isUpright(image, faces)))
      for (const turns of [1, 2, 3]) {
        const found = await this.at(levels, turns, signal);
        if (bestScore(found) > bestScore(faces)) faces = found;
      }
    return largestFirst(faces);
  }

  /** The photo at each scale, the finest first. */
  private levels(image: Pixels, frame: boolean): Level[] {
    const { rules } = this, { width, height } = image, longest = Math.max(width, height);
    let finest = rules.size;
    if (!frame) {
      const extent = Math.min(longest, rules.usual_aspect * Math.min(width, height));
      const share = Math.min(Math.max(rules.share, rules.size / extent), Math.sqrt(rules.max_pixels / (width * height)));
      finest = Math.min(rounded(longest * share), Math.max(longest, rules.size));
      // Two scales that are nearly equal find the same faces.
      if (finest <= 1.25 * rules.size) finest = rules.size;
    }
    // A line of pixels is padded to a stripe.
    finest = Math.min(finest, Math.floor(rules.max_pixels / rules.min_size), longest);
    const sizes = [finest];
    while (sizes.at(-1)! > rules.size) sizes.push(Math.max(rules.size, rounded(sizes.at(-1)! / rules.step)));
    if (sizes.at(-1)! >= rules.size / 2) sizes.push(rounded(rules.size / rules.step));
    let level = image;
    return sizes.map((size) => {
      level = resized(level, (width * size) / longest, (height * size) / longest);
      const pixel: Point = [width / level.width, height / level.height];
      return { image: level, pixel, largest: rules.largest_face * Math.max(...pixel) };
    });
  }

  /** Faces after so many turns of 90° counterclockwise, each from the finest level where it is not too large. */
  private async at(levels: Level[], turns: number, signal?: AbortSignal): Promise<Detection[]> {
    const passes: { largest: number; faces: Detection[] }[] = [];
    for (const level of levels)
      for await (const faces of this.passes(level, turns, signal)) passes.push({ largest: level.largest, faces });
    if (passes.length === 1) return passes[0]!.faces;
    const found = passes.flatMap(({ largest, faces }, pass) =>
      faces.map((face): Candidate => ({ face, pass, largest, tooLarge: Math.max(...sides(face)) > largest })));
    found.sort((one, other) => +one.tooLarge - +other.tooLarge || one.largest - other.largest || other.face.score - one.face.score);
    const order = found.map((_, index) => -index);
    const kept = nms(found.map(({ face }) => face.box), order, this.rules.max_iou, found.map(({ pass }) => pass)).map((index) => found[index]!);
    const large = kept.map(({ face }) => face).filter((face) => Math.max(...sides(face)) > levels[0]!.largest);
    return kept.filter((each) => !large.some((whole) => this.isPart(each, whole))).map(({ face }) => face);
  }

  /** Whether a face lies inside one with a better score that is too large for its level. */
  private isPart({ face, largest }: Candidate, whole: Detection): boolean {
    if (Math.max(...sides(whole)) <= largest || whole.score <= face.score) return false;
    const shared = [0, 1].map((axis) => Math.max(Math.min(face.box[axis + 2]!, whole.box[axis + 2]!) - Math.max(face.box[axis]!, whole.box[axis]!), 0));
    const [width, height] = sides(face);
    return shared[0]! * shared[1]! > this.rules.max_inside * width * height;
  }

  /** The faces that each pass over a tile of a level finds, in pixels of the photo. */
  private async *passes({ image, pixel }: Level, turns: number, signal?: AbortSignal): AsyncGenerator<Detection[]> {
    const { min_size, max_pass_pixels, tile, edge } = this.rules;
    const padded = Math.max(image.height, min_size) * Math.max(image.width, min_size);
    const [highest, widest] = padded <= max_pass_pixels ? [image.height, image.width] : [tile, tile];
    for (const [top, bottom] of this.tiles(image.height, highest))
      for (const [left, right] of this.tiles(image.width, widest)) {
        signal?.throwIfAborted();
        const cut = [left > 0, top > 0, right < image.width, bottom < image.height];
        const found = await this.network.find(turned(part(image, left, top, right, bottom), turns));
        const faces = found.map((face) => unturned(face, turns, bottom - top, right - left));
        // Tiles overlap, so another has the whole of a face that an edge cuts, or a coarser level has it.
        const whole = faces.filter(({ box }) => ![box[0] < edge, box[1] < edge, box[2] >= right - left - edge, box[3] >= bottom - top - edge]
          .some((near, side) => near && cut[side]));
        yield whole.map((face) => moved(face, pixel, [left * pixel[0], top * pixel[1]]));
      }
  }

  /** Begins and ends of the fewest tiles, of equal length, that overlap by a face of the largest size. */
  private *tiles(length: number, longest: number): Generator<[number, number]> {
    const overlap = Math.min(this.rules.largest_face + 2 * this.rules.edge, Math.floor(longest / 2));
    const count = length <= longest ? 1 : Math.ceil((length - overlap) / (longest - overlap));
    const tile = Math.ceil((length + (count - 1) * overlap) / count);
    for (let number = 0; number < count; number++) {
      const begin = count === 1 ? 0 : Math.floor((number * (length - tile)) / (count - 1));
      yield [begin, begin + tile];
    }
  }

  /** Whether the best face is one in the photo as it is, rather than in the photo turned. */
  private async isUpright(image: Pixels, faces: Detection[]): Promise<boolean> {
    if (!faces.length) return false;
    const { sure, surroundings, look } = this.rules;
    const best = faces.reduce((one, other) => (other.score > one.score ? other : one));
    if (best.score >= sure) return true;
    const half = (surroundings * Math.max(...sides(best))) / 2, limits = [image.width, image.height];
    const within = (value: number, axis: number) => Math.trunc(Math.max(0, Math.min(limits[axis]!, value)));
    const center = [0, 1].map((axis) => (best.box[axis]! + best.box[axis + 2]!) / 2);
    const [left, top] = center.map((value, axis) => within(value - half, axis)) as Point;
    const [right, bottom] = center.map((value, axis) => within(Math.ceil(value + half), axis)) as Point;
    if (right <= left || bottom <= top) return false;
    const cut = part(image, left, top, right, bottom), scale = look / Math.max(cut.width, cut.height);
    const small = resized(cut, cut.width * scale, cut.height * scale);
    // In one pass over all four turns, each in a quarter of an image.
    const views = blank(2 * look, 2 * look);
    for (let turns = 0; turns < 4; turns++) paste(turned(small, turns), views, look * (turns % 2), look * (turns >> 1));
    const scores = [0, 0, 0, 0];
    for (const { box, score } of await this.network.find(views)) {
      const [column, row] = [(box[0] + box[2]) / 2 >= look, (box[1] + box[3]) / 2 >= look];
      const quarter = 2 * +row + +column;
      scores[quarter] = Math.max(scores[quarter]!, score);
    }
    return scores[0]! > Math.max(...scores.slice(1)) && scores[0]! > sure - 0.1;
  }
}

const bestScore = (faces: Detection[]): number => Math.max(0, ...faces.map((face) => face.score));

function resized(image: Pixels, width: number, height: number): Pixels {
  const [w, h] = [Math.max(1, rounded(width)), Math.max(1, rounded(height))];
  // Halving averages whole pixels, which takes a tenth of the time.
  while (image.height >= 2 * h && image.width >= 2 * w && Math.min(image.width, image.height) > 1)
    image = resizeArea(image, image.width >> 1, image.height >> 1);
  if (image.width === w && image.height === h) return image;
  // To two thirds, interpolation is as good as areas, which take five times as long.
  return image.height > 1.5 * h || image.width > 1.5 * w ? resizeArea(image, w, h) : resizeLinear(image, w, h);
}
