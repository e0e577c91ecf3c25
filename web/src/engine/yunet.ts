/** One pass of YuNet, with the detections of `facerts.detection.yunet`. */
import { type Detection, largestFirst, nms, type Point } from "./detection";
import type { Network } from "./network";
import type { Pixels } from "./pixels";
import type { Detector } from "./site";

/** Outputs and their values per location: probabilities of a face and of an object, the box, five points. */
const COLUMNS = { cls: 1, obj: 1, bbox: 4, kps: 10 };

export class YuNet {
  constructor(private readonly network: Network, readonly rules: Detector) {}

  /** The faces in an image at its own resolution. */
  async find(image: Pixels): Promise<Detection[]> {
    const { strides, threshold, max_candidates, max_iou } = this.rules, largest = Math.max(...strides);
    const [height, width] = [image.height, image.width].map((side) => Math.ceil(side / largest) * largest) as Point;
    const outputs = await this.network.run(toTensor(image, width, height), [1, 3, height, width]);
    const least = Math.fround(threshold), candidates: { score: number; stride: number; at: number }[] = [];
    for (const stride of strides) {
      const [cls, obj] = [outputs[`cls_${stride}`]!, outputs[`obj_${stride}`]!];
      for (let at = 0; at < cls.length; at++) {
        const score = Math.fround(Math.sqrt(Math.fround(unit(cls[at]!) * unit(obj[at]!))));
        if (!Number.isFinite(score)) throw new Error("the detector's scores are not finite numbers");
        if (score >= least) candidates.push({ score, stride, at });
      }
    }
    if (candidates.length > max_candidates) {
      candidates.sort((one, other) => other.score - one.score);
      candidates.length = max_candidates;
    }
    const faces = candidates.map(({ score, stride, at }): Detection => {
      const columns = width / stride, [column, row] = [at % columns, Math.floor(at / columns)];
      const value = (kind: keyof typeof COLUMNS, index: number) => outputs[`${kind}_${stride}`]![COLUMNS[kind] * at + index]!;
      const [x, y] = [(column + value("bbox", 0)) * stride, (row + value("bbox", 1)) * stride];
      const [w, h] = [Math.exp(value("bbox", 2)) * stride, Math.exp(value("bbox", 3)) * stride];
      return {
        box: [x - w / 2, y - h / 2, x + w / 2, y + h / 2],
        points: [0, 1, 2, 3, 4].map((point): Point => [(column + value("kps", 2 * point)) * stride, (row + value("kps", 2 * point + 1)) * stride]),
        score,
        rotation: 0,
      };
    });
    // OpenCV's NMS compares boxes truncated to whole pixels.
    const whole = faces.map(({ box: [left, top, right, bottom] }): Detection["box"] => {
      const [x, y] = [Math.trunc(left), Math.trunc(top)];
      return [x, y, x + Math.trunc(right - left), y + Math.trunc(bottom - top)];
    });
    return largestFirst(nms(whole, faces.map((face) => face.score), max_iou).map((index) => faces[index]!));
  }
}

const unit = (value: number) => Math.max(0, Math.min(1, value));

/** Planes of blue, green and red, padded with black. */
function toTensor(image: Pixels, width: number, height: number): Float32Array {
  const plane = width * height, tensor = new Float32Array(3 * plane);
  for (let y = 0, from = 0; y < image.height; y++)
    for (let x = 0, to = y * width; x < image.width; x++, from += 4, to++) {
      tensor[to] = image.data[from + 2]!;
      tensor[plane + to] = image.data[from + 1]!;
      tensor[2 * plane + to] = image.data[from]!;
    }
  return tensor;
}
