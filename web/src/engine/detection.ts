/** A face that was found, and what every detector needs; see `facerts.detection.detector`. */

type Box = [number, number, number, number];
export type Point = [number, number];

/** A face in a photo, in pixels of the photo. */
export interface Detection {
  box: Box;
  points: Point[];
  score: number;
  /** Degrees by which the photo has to be turned clockwise for an upright face. */
  rotation: number;
}

export const sides = ({ box }: Detection): Point => [box[2] - box[0], box[3] - box[1]];
const area = (face: Detection): number => sides(face)[0] * sides(face)[1];
export const largestFirst = (faces: Detection[]): Detection[] => [...faces].sort((one, other) => area(other) - area(one));

/** The face where a pixel has another size and the origin is elsewhere. */
export function moved(face: Detection, pixel: Point, offset: Point): Detection {
  const move = ([x, y]: Point): Point => [x * pixel[0] + offset[0], y * pixel[1] + offset[1]];
  const [left, top] = move([face.box[0], face.box[1]]), [right, bottom] = move([face.box[2], face.box[3]]);
  return { ...face, box: [left, top, right, bottom], points: face.points.map(move) };
}

/** A face found in a photo of this size that was turned so many times by 90° counterclockwise. */
export function unturned(face: Detection, turns: number, height: number, width: number): Detection {
  if (turns === 0) return face;
  const back = ([x, y]: Point, height: number, width: number): Point =>
    turns === 1 ? [width - y, x] : turns === 2 ? [width - x, height - y] : [y, height - x];
  const first = back([face.box[0], face.box[1]], height, width), second = back([face.box[2], face.box[3]], height, width);
  const [left, right] = [Math.min(first[0], second[0]), Math.max(first[0], second[0])];
  const [top, bottom] = [Math.min(first[1], second[1]), Math.max(first[1], second[1])];
  return {
    box: [left, top, right, bottom],
    // A box has edges of pixels, and points are at their centers.
    points: face.points.map((point) => back(point, height - 1, width - 1)),
    score: face.score,
    rotation: (360 - 90 * turns) % 360,
  };
}

/** Indices of the best of each group of overlapping boxes, best first; boxes of one pass do not compete. */
export function nms(boxes: Box[], scores: number[], maxIou: number, passes?: number[]): number[] {
  const area = (box: Box) => Math.max(box[2] - box[0], 0) * Math.max(box[3] - box[1], 0);
  let order = boxes.map((_, index) => index).sort((one, other) => scores[other]! - scores[one]!);
  const kept: number[] = [];
  while (order.length) {
    const best = order.shift()!, first = boxes[best]!;
    kept.push(best);
    order = order.filter((index) => {
      if (passes && passes[index] === passes[best]) return true;
      const other = boxes[index]!;
      const shared = Math.max(Math.min(first[2], other[2]) - Math.max(first[0], other[0]), 0) *
        Math.max(Math.min(first[3], other[3]) - Math.max(first[1], other[1]), 0);
      return shared <= maxIou * (area(first) + area(other) - shared);
    });
  }
  return kept;
}

/** Yaw and pitch of the head in the photo turned upright, and its roll in the photo, in degrees. */
export function headPose(face: Detection, fit: number[][]): [number, number, number] {
  const turns = face.rotation / 90;
  const upright = face.points.map(([x, y]): Point => [[x, y], [-y, x], [-x, -y], [y, -x]][turns] as Point);
  const mean = [0, 1].map((axis) => upright.reduce((sum, point) => sum + point[axis]!, 0) / upright.length) as Point;
  const row = (axis: 0 | 1) => fit.map((weights) => weights.reduce((sum, weight, at) => sum + weight * (upright[at]![axis] - mean[axis]), 0));
  const [x, y] = [row(0), row(1)];
  const dot = (one: number[], other: number[]) => one.reduce((sum, value, at) => sum + value * other[at]!, 0);
  // The nearest matrix with orthonormal rows: (P Pᵀ)^(-1/2) P, where the root of a 2 x 2 matrix has a closed form.
  const [a, b, d] = [dot(x, x), dot(x, y), dot(y, y)];
  const root = Math.sqrt(Math.max(a * d - b * b, 0)), trace = Math.sqrt(a + d + 2 * root);
  if (!(root > 0)) return [0, 0, 0];
  const inverse = [(d + root) / (root * trace), -b / (root * trace), (a + root) / (root * trace)] as const;
  const [first, second] = [x.map((value, at) => inverse[0] * value + inverse[1] * y[at]!), x.map((value, at) => inverse[1] * value + inverse[2] * y[at]!)];
  const degrees = 180 / Math.PI, [u, v] = [first[2]!, second[2]!];
  const yaw = degrees * Math.atan2(u, Math.sqrt(Math.max(0, 1 - u * u - v * v)));
  const pitch = degrees * Math.asin(Math.max(-1, Math.min(1, v)));
  const roll = degrees * Math.atan2(second[0]!, first[0]!);
  return [yaw, pitch, ((roll - face.rotation + 180) % 360 + 360) % 360 - 180];
}
