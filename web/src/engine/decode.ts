/** An encoded image, or what holds pixels, to upright pixels: the same bytes as `facerts.images.decode` gives. */
import type { ImageSource } from "../types";
import { readHeader } from "./header";
import { type Pixels, turned } from "./pixels";

export interface Limits {
  max_bytes: number;
  max_pixels: number;
}

const ALWAYS_READ = ["JPEG", "PNG", "WebP", "BMP"];

/** Decode; throws an error that says what is wrong with the image. */
export async function decode(source: ImageSource, { max_bytes, max_pixels }: Limits): Promise<Pixels> {
  if (source instanceof ImageData) return { width: source.width, height: source.height, data: source.data };
  if (source instanceof ImageBitmap) {
    checkSize(source.width, source.height, max_pixels);
    return drawn(source);
  }
  if (source.size === 0) throw new Error("the file is empty");
  if (source.size > max_bytes) throw new Error(`the file exceeds the limit of ${max_bytes.toLocaleString("en")} bytes`);
  const { format, width, height, alpha, orientation } = readHeader(new Uint8Array(await source.arrayBuffer()));
  if (!format) throw new Error("not a JPEG, PNG, WebP, BMP, GIF, TIFF, HEIC or AVIF image");
  checkSize(width, height, max_pixels);
  let bitmap: ImageBitmap;
  try {
    bitmap = await createImageBitmap(source, {
      // Colors as they are stored.
      premultiplyAlpha: "none",
      colorSpaceConversion: "none",
      imageOrientation: format === "WebP" ? "none" : "from-image",
    });
  } catch {
    throw new Error(ALWAYS_READ.includes(format) ? "broken image, it cannot be decoded" : `${format} is not read by this browser; convert it to JPEG`);
  }
  try {
    checkSize(bitmap.width, bitmap.height, max_pixels);
    return upright((alpha && stored(bitmap)) || drawn(bitmap), orientation);
  } finally {
    bitmap.close();
  }
}

function checkSize(width: number, height: number, limit: number): void {
  if (width * height > limit)
    throw new Error(`${width} x ${height} pixels are more than the limit of ${limit.toLocaleString("en")}; scale the image down or cut it into parts`);
}

function drawn(bitmap: ImageBitmap): Pixels {
  const { width, height } = bitmap, context = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true })!;
  context.drawImage(bitmap, 0, 0);
  return { width, height, data: context.getImageData(0, 0, width, height).data };
}

let gl: WebGL2RenderingContext | null | undefined;

/** The colors under transparency, which a canvas loses; null where there is no WebGL, or the image is too large for it. */
function stored(bitmap: ImageBitmap): Pixels | null {
  gl ??= new OffscreenCanvas(1, 1).getContext("webgl2");
  const { width, height } = bitmap;
  if (!gl || gl.isContextLost() || Math.max(width, height) > gl.getParameter(gl.MAX_TEXTURE_SIZE)) return null;
  const data = new Uint8Array(4 * width * height), [texture, buffer] = [gl.createTexture(), gl.createFramebuffer()];
  gl.bindTexture(gl.TEXTURE_2D, texture);
  gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, bitmap);
  gl.bindFramebuffer(gl.FRAMEBUFFER, buffer);
  gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
  gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, data);
  gl.deleteFramebuffer(buffer);
  gl.deleteTexture(texture);
  return gl.getError() === gl.NO_ERROR ? { width, height, data } : null;
}

/** Turned, and mirrored, as an EXIF orientation says. */
function upright(image: Pixels, orientation: number): Pixels {
  if (orientation === 1) return image;
  const turns = { 3: 2, 4: 2, 5: 3, 6: 3, 7: 1, 8: 1 }[orientation] ?? 0, result = turned(image, turns);
  if (![2, 4, 5, 7].includes(orientation)) return result;
  const pixels = new Uint32Array(result.data.buffer, result.data.byteOffset, result.width * result.height);
  for (let y = 0; y < result.height; y++) pixels.subarray(y * result.width, (y + 1) * result.width).reverse();
  return result;
}
