/** Why a face is poor: measures of its crop and its detection against limits; see `facerts.scoring.reasons`. */
import { similarityTransform } from "./align";
import { type Detection, headPose, type Point } from "./detection";
import type { Pixels } from "./pixels";
import type { ReasonRules, Site } from "./site";

/** Reasons that an aligned crop shows. */
export function cropReasons(crop: Pixels, rules: ReasonRules): string[] {
  const [left, top, right, bottom] = rules.face_region, width = right - left, height = bottom - top;
  const gray = new Float32Array(width * height), levels = new Uint32Array(256);
  for (let y = 0, at = 0; y < height; y++)
    for (let x = 0; x < width; x++, at++) {
      const from = 4 * ((top + y) * crop.width + left + x);
      const level = (crop.data[from]! * 9798 + crop.data[from + 1]! * 19235 + crop.data[from + 2]! * 3735 + 16384) >> 15;
      gray[at] = level;
      levels[level]!++;
    }
  // Too little or too much light hides details, so sharpness and noise count only without either.
  let luminance = 0;
  for (let count = levels[0]!; count < 0.75 * gray.length; count += levels[luminance]!) luminance++;
  if (luminance < rules.min_luminance) return ["under_exposed"];
  if (luminance > rules.max_luminance) return ["over_exposed"];
  const at1 = blurred(gray, width, height, 0.7, 3), at2 = blurred(at1, width, height, 2, 17);
  // What is left has no finer details, so half the resolution holds it; Gaussians of 4 and 8 pixels are 2 and 4 there.
  const [halfWidth, halfHeight] = [Math.ceil(width / 2), Math.ceil(height / 2)], half = new Float32Array(halfWidth * halfHeight);
  for (let y = 0, at = 0; y < halfHeight; y++) for (let x = 0; x < halfWidth; x++, at++) half[at] = at2[2 * y * width + 2 * x]!;
  const at4 = blurred(half, halfWidth, halfHeight, 2, 17), at8 = blurred(at4, halfWidth, halfHeight, 4, 33);
  const [below1, below2, below8] = [[gray, at1], [at1, at2], [at4, at8]].map(([fine, coarse]) => Math.log(variance(fine!, coarse!) + rules.floor)) as [number, number, number];
  const sharpness = (below1 + below2) / 2 - below8, noise = below1 - below2;
  return [...(sharpness < rules.min_sharpness ? ["blurred"] : []), ...(noise > rules.max_noise ? ["noisy"] : [])];
}

/** Reasons that a detection shows in a photo of a size in pixels. */
export function detectionReasons(face: Detection, width: number, height: number, site: Site): string[] {
  const { max_outside, min_eye_distance, max_yaw } = site.reasons, [first, second] = face.points as [Point, Point];
  return [
    ...(shareOutside(face, width, height, site) > max_outside ? ["cut_off"] : []),
    ...(Math.hypot(second[0] - first[0], second[1] - first[1]) < min_eye_distance ? ["too_small"] : []),
    ...(Math.abs(headPose(face, site.head_fit)[0]) > max_yaw ? ["turned"] : []),
  ];
}

/** Reasons in the order in which faces list them, without "not_a_face" where another explains it. */
export function inOrder(reasons: string[], { order, looking_like_none }: ReasonRules): string[] {
  const explained = reasons.some((reason) => looking_like_none.includes(reason));
  return order.filter((reason) => reasons.includes(reason) && !(explained && reason === "not_a_face"));
}

/** The share of the face region that lies outside the photo, of ten by ten points in it. */
function shareOutside({ points }: Detection, width: number, height: number, { template, reasons }: Site): number {
  const { real, imaginary, x: dx, y: dy } = similarityTransform(template, points), [left, top, right, bottom] = reasons.face_region;
  let outside = 0;
  for (let row = 0; row < 10; row++)
    for (let column = 0; column < 10; column++) {
      const [u, v] = [left + ((2 * column + 1) * (right - left)) / 20, top + ((2 * row + 1) * (bottom - top)) / 20];
      const [x, y] = [real * u - imaginary * v + dx, imaginary * u + real * v + dy];
      outside += +(x < -0.5 || y < -0.5 || x > width - 0.5 || y > height - 0.5);
    }
  return outside / 100;
}

/** A Gaussian blur whose edges are mirrored, as cv2.GaussianBlur. */
function blurred(values: Float32Array, width: number, height: number, sigma: number, size: number): Float32Array {
  const reach = size >> 1, weights = Float64Array.from({ length: size }, (_, at) => Math.exp(-((at - reach) ** 2) / (2 * sigma * sigma)));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  weights.forEach((weight, at) => { weights[at] = weight / total; });
  const between = new Float32Array(values.length), result = new Float32Array(values.length);
  const mirrored = (place: number, length: number) => {
    while (place < 0 || place >= length) place = place < 0 ? -place : 2 * length - 2 - place;
    return place;
  };
  const pass = (from: Float32Array, to: Float32Array, length: number, step: number, lines: number, stride: number) => {
    const offsets = new Int32Array(size);
    for (let place = 0; place < length; place++) {
      for (let at = 0; at < size; at++) offsets[at] = step * mirrored(place + at - reach, length);
      for (let line = 0; line < lines; line++) {
        let sum = 0;
        for (let at = 0; at < size; at++) sum += weights[at]! * from[offsets[at]! + line * stride]!;
        to[place * step + line * stride] = sum;
      }
    }
  };
  pass(values, between, width, 1, height, width);
  pass(between, result, height, width, width, 1);
  return result;
}

/** The variance of the difference of two images. */
function variance(one: Float32Array, other: Float32Array): number {
  let [sum, squares] = [0, 0];
  for (let at = 0; at < one.length; at++) {
    const difference = one[at]! - other[at]!;
    sum += difference;
    squares += difference * difference;
  }
  return squares / one.length - (sum / one.length) ** 2;
}
