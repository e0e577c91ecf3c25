/** Five points to an aligned crop; see `facerts.images.align` and `facerts.images.crop`. */
import type { Point } from "./detection";
import { blank, type Pixels, resizeArea, resizeLinear, rounded } from "./pixels";

/** Rotation and scale as a complex number, and the shift: x' = real x - imaginary y + shift. */
interface Similarity {
  real: number;
  imaginary: number;
  x: number;
  y: number;
}

/** The similarity that maps points onto a target by least squares (Umeyama 1991). */
export function similarityTransform(points: Point[], target: Point[]): Similarity {
  const mean = (values: Point[], axis: 0 | 1) => values.reduce((sum, point) => sum + point[axis], 0) / values.length;
  const [px, py, tx, ty] = [mean(points, 0), mean(points, 1), mean(target, 0), mean(target, 1)];
  let [real, imaginary, spread] = [0, 0, 0];
  points.forEach((point, at) => {
    const [x, y, u, v] = [point[0] - px, point[1] - py, target[at]![0] - tx, target[at]![1] - ty];
    real += x * u + y * v;
    imaginary += x * v - y * u;
    spread += x * x + y * y;
  });
  if (!(spread >= 1e-12 && spread < Infinity)) throw new Error("the points are all at the same position, or not finite");
  real /= spread;
  imaginary /= spread;
  return { real, imaginary, x: tx - real * px + imaginary * py, y: ty - imaginary * px - real * py };
}

/** The crop in which a face's points lie on the template; black where it extends beyond the image. */
export function align(image: Pixels, points: Point[], template: Point[], size: number): Pixels {
  let matrix = similarityTransform(points, template);
  const scale = Math.hypot(matrix.real, matrix.imaginary);
  if (scale < 0.5) {
    // A bilinear warp samples only four pixels, so a large face is downscaled by area averaging first.
    const [width, height] = [image.width, image.height].map((side) => Math.max(1, rounded(side * 2 * scale))) as Point;
    const [x, y] = [width / image.width, height / image.height];
    image = resizeArea(image, width, height);
    // Pixels are areas: the center of pixel 0 lies half a pixel from the edge.
    matrix = similarityTransform(points.map((point): Point => [(point[0] + 0.5) * x - 0.5, (point[1] + 0.5) * y - 0.5]), template);
  }
  return warp(image, matrix, size);
}

/** Between pixels, and black outside, as cv2.warpAffine interpolates. */
function warp(image: Pixels, { real, imaginary, x: dx, y: dy }: Similarity, size: number): Pixels {
  const crop = blank(size, size), { width, height, data } = image, norm = real * real + imaginary * imaginary;
  const [a, b] = [real / norm, imaginary / norm], [ox, oy] = [-a * dx - b * dy, b * dx - a * dy];
  for (let v = 0, at = 0; v < size; v++)
    for (let u = 0; u < size; u++, at += 4) {
      const x = a * u + b * v + ox, y = -b * u + a * v + oy, left = Math.floor(x), top = Math.floor(y);
      if (left < -1 || top < -1 || left >= width || top >= height) continue;
      const [fx, fy] = [x - left, y - top], from = 4 * (top * width + left), below = from + 4 * width;
      const [inLeft, inRight, inTop, inBottom] = [left >= 0, left + 1 < width, top >= 0, top + 1 < height];
      for (let c = 0; c < 3; c++) {
        const first = inTop && inLeft ? data[from + c]! : 0, second = inTop && inRight ? data[from + 4 + c]! : 0;
        const third = inBottom && inLeft ? data[below + c]! : 0, fourth = inBottom && inRight ? data[below + 4 + c]! : 0;
        const [upper, lower] = [first + fx * (second - first), third + fx * (fourth - third)];
        crop.data[at + c] = rounded(upper + fy * (lower - upper));
      }
    }
  return crop;
}

/** An aligned crop at the size that networks expect. */
export function fitCrop(image: Pixels, size: number, least: number): Pixels {
  if (image.width !== image.height)
    throw new Error(`${image.width} x ${image.height} pixels are not an aligned crop, which must be square; photos need a detector`);
  if (image.width === size) return image;
  if (image.width < least)
    throw new Error(`${image.width} x ${image.height} pixels are too few for a face; a crop must have at least ${least} x ${least}`);
  return image.width > size ? resizeArea(image, size, size) : resizeLinear(image, size, size);
}
