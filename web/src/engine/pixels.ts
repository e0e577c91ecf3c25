/** Pixels, resized and turned as OpenCV does it, to the same bytes. */

/** An image, four bytes a pixel: red, green, blue, and one that is not looked at. */
export interface Pixels {
  width: number;
  height: number;
  data: Uint8Array | Uint8ClampedArray;
}

/** Half to even, as Python and OpenCV round. */
export function rounded(value: number): number {
  const low = Math.floor(value);
  const over = value - low;
  return over < 0.5 || (over === 0.5 && low % 2 === 0) ? low : low + 1;
}

export function blank(width: number, height: number): Pixels {
  return { width, height, data: new Uint8Array(4 * width * height) };
}

/** A part; the whole image is not copied. */
export function part(image: Pixels, left: number, top: number, right: number, bottom: number): Pixels {
  if (left === 0 && top === 0 && right === image.width && bottom === image.height) return image;
  const cut = blank(right - left, bottom - top);
  for (let y = 0; y < cut.height; y++) {
    const from = 4 * ((top + y) * image.width + left);
    cut.data.set(image.data.subarray(from, from + 4 * cut.width), 4 * y * cut.width);
  }
  return cut;
}

/** The image after so many turns of 90° counterclockwise. */
export function turned(image: Pixels, turns: number): Pixels {
  if (turns === 0) return image;
  const { width, height } = image;
  const result = turns % 2 ? blank(height, width) : blank(width, height);
  const from = new Uint32Array(image.data.buffer, image.data.byteOffset, width * height);
  const to = new Uint32Array(result.data.buffer);
  let at = 0;
  for (let y = 0; y < result.height; y++)
    for (let x = 0; x < result.width; x++)
      to[at++] = turns === 1 ? from[x * width + (width - 1 - y)]! :
        turns === 2 ? from[(height - 1 - y) * width + (width - 1 - x)]! : from[(height - 1 - x) * width + y]!;
  return result;
}

/** Pasted into another image with its corner at a place. */
export function paste(image: Pixels, into: Pixels, left: number, top: number): void {
  for (let y = 0; y < image.height; y++)
    into.data.set(image.data.subarray(4 * y * image.width, 4 * (y + 1) * image.width), 4 * ((top + y) * into.width + left));
}

/** Pixels as areas: a pixel of the result is the mean of what it covers (cv2.INTER_AREA). */
export function resizeArea(image: Pixels, width: number, height: number): Pixels {
  const result = blank(width, height);
  if (image.width === 2 * width && image.height === 2 * height) {
    const from = image.data, to = result.data, row = 4 * image.width;
    for (let y = 0, at = 0; y < height; y++)
      for (let x = 0, first = 2 * y * row; x < width; x++, first += 8, at += 4)
        for (let c = 0; c < 3; c++)
          to[at + c] = (from[first + c]! + from[first + 4 + c]! + from[first + row + c]! + from[first + row + 4 + c]! + 2) >> 2;
    return result;
  }
  const columns = shares(image.width, width), rows = shares(image.height, height);
  const sums = new Float32Array(3 * width), line = new Float32Array(3 * width);
  for (let y = 0; y < height; y++) {
    sums.fill(0);
    for (let k = rows.start[y]!; k < rows.start[y + 1]!; k++) {
      const begin = 4 * rows.source[k]! * image.width, weight = rows.weight[k]!;
      for (let x = 0; x < width; x++) {
        let [red, green, blue] = [0, 0, 0];
        for (let j = columns.start[x]!; j < columns.start[x + 1]!; j++) {
          const at = begin + 4 * columns.source[j]!, share = columns.weight[j]!;
          red += share * image.data[at]!;
          green += share * image.data[at + 1]!;
          blue += share * image.data[at + 2]!;
        }
        line[3 * x] = red;
        line[3 * x + 1] = green;
        line[3 * x + 2] = blue;
      }
      for (let i = 0; i < line.length; i++) sums[i]! += weight * line[i]!;
    }
    for (let x = 0, at = 4 * y * width; x < width; x++, at += 4)
      for (let c = 0; c < 3; c++) result.data[at + c] = rounded(sums[3 * x + c]!);
  }
  return result;
}

/** Of each pixel of the result, the pixels of the source that it covers, and by how much. */
function shares(source: number, target: number): { start: Int32Array; source: number[]; weight: number[] } {
  const scale = source / target, found = { start: new Int32Array(target + 1), source: [] as number[], weight: [] as number[] };
  const add = (pixel: number, weight: number) => { found.source.push(pixel); found.weight.push(Math.fround(weight)); };
  for (let x = 0; x < target; x++) {
    const from = x * scale, to = from + scale, cell = Math.min(scale, source - from);
    const last = Math.min(Math.floor(to), source - 1), first = Math.min(Math.ceil(from), last);
    if (first - from > 1e-3) add(first - 1, (first - from) / cell);
    for (let pixel = first; pixel < last; pixel++) add(pixel, 1 / cell);
    if (to - last > 1e-3) add(last, Math.min(to - last, 1, cell) / cell);
    found.start[x + 1] = found.source.length;
  }
  return found;
}

/** Between pixels, in the fixed point of OpenCV (cv2.INTER_LINEAR). */
export function resizeLinear(image: Pixels, width: number, height: number): Pixels {
  const result = blank(width, height);
  const columns = between(image.width, width), rows = between(image.height, height);
  const line = (row: number, into: Int32Array) => {
    const begin = 4 * row * image.width;
    for (let x = 0; x < width; x++) {
      const left = begin + 4 * columns.low[x]!, right = begin + 4 * columns.high[x]!;
      for (let c = 0; c < 3; c++)
        into[3 * x + c] = columns.lowWeight[x]! * image.data[left + c]! + columns.highWeight[x]! * image.data[right + c]!;
    }
  };
  const above = new Int32Array(3 * width), below = new Int32Array(3 * width);
  for (let y = 0; y < height; y++) {
    line(rows.low[y]!, above);
    line(rows.high[y]!, below);
    const [low, high] = [rows.lowWeight[y]!, rows.highWeight[y]!];
    for (let x = 0, at = 4 * y * width; x < width; x++, at += 4)
      for (let c = 0; c < 3; c++)
        result.data[at + c] = (((low * (above[3 * x + c]! >> 4)) >> 16) + ((high * (below[3 * x + c]! >> 4)) >> 16) + 2) >> 2;
  }
  return result;
}

/** The two pixels between which each pixel of the result lies, and their weights in 2048ths. */
function between(source: number, target: number) {
  const [low, high, lowWeight, highWeight] = [0, 1, 2, 3].map(() => new Int32Array(target)) as [Int32Array, Int32Array, Int32Array, Int32Array];
  for (let x = 0; x < target; x++) {
    const place = Math.fround((x + 0.5) * (source / target) - 0.5);
    const inside = place >= 0 && Math.floor(place) < source - 1;
    const pixel = inside ? Math.floor(place) : place < 0 ? 0 : source - 1;
    const share = inside ? Math.fround(place - pixel) : 0;
    low[x] = pixel;
    high[x] = Math.min(pixel + 1, source - 1);
    lowWeight[x] = rounded(Math.fround(1 - share) * 2048);
    highWeight[x] = rounded(share * 2048);
  }
  return { low, high, lowWeight, highWeight };
}
