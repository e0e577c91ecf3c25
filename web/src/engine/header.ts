/** What the first bytes of an image file say, before anything is decoded. */

export interface Header {
  format: string;
  width: number;
  height: number;
  /** Whether pixels may be transparent: their colors are read as they are stored. */
  alpha: boolean;
  /** EXIF orientation, 1 to 8, of formats for which browsers do not apply it. */
  orientation: number;
}

const OTHERS: Record<string, string> = { II: "TIFF", MM: "TIFF", GI: "GIF" };

/** The header of a JPEG, PNG, WebP or BMP; of another format only its name, empty if it is no image. */
export function readHeader(bytes: Uint8Array<ArrayBuffer>): Header {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = (from: number, length: number) => String.fromCharCode(...bytes.subarray(from, from + length));
  const header = (format: string, width = 0, height = 0, alpha = false, orientation = 1): Header => ({ format, width, height, alpha, orientation });
  try {
    if (view.getUint16(0) === 0xffd8) return header("JPEG", ...jpegSize(view));
    if (text(0, 8) === "\x89PNG\r\n\x1a\n") {
      if (!text(bytes.length - 16, 16).includes("IEND")) throw new Error("the PNG is truncated");
      return header("PNG", view.getUint32(16), view.getUint32(20), true);
    }
    if (text(0, 2) === "BM") return header("BMP", Math.abs(view.getInt32(18, true)), Math.abs(view.getInt32(22, true)));
    if (text(0, 4) === "RIFF" && text(8, 4) === "WEBP") {
      if (view.getUint32(4, true) + 8 > bytes.length) throw new Error("the WebP is truncated");
      return header("WebP", ...webp(view, text));
    }
    if (text(4, 4) === "ftyp") return header(text(8, 4) === "avif" ? "AVIF" : "HEIC");
    return header(OTHERS[text(0, 2)] ?? "");
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new Error("broken image, its header is cut off");
  }
}

/** Width and height, from the frame; the end marker must be there, as browsers fill what is missing with gray. */
function jpegSize(view: DataView): [number, number] {
  for (let at = 2; ;) {
    const marker = view.getUint8(at + 1);
    if (view.getUint8(at) !== 0xff) throw new Error(`broken image, no JPEG marker at byte ${at}`);
    if (marker === 0xff) at += 1;
    else if (marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker)) {
      let end = view.byteLength - 2;
      while (end > at && view.getUint16(end) !== 0xffd9) end--;
      if (end === at) throw new Error("the JPEG is truncated");
      return [view.getUint16(at + 7), view.getUint16(at + 5)];
    } else at += 2 + view.getUint16(at + 2);
  }
}

function webp(view: DataView, text: (from: number, length: number) => string): [number, number, boolean, number] {
  const kind = text(12, 4);
  if (kind === "VP8 ") return [view.getUint16(26, true) & 0x3fff, view.getUint16(28, true) & 0x3fff, false, 1];
  if (kind === "VP8L") {
    const bits = view.getUint32(21, true);
    return [(bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1, (bits & (1 << 28)) !== 0, 1];
  }
  if (kind !== "VP8X") throw new Error("broken image, no WebP");
  const uint24 = (at: number) => view.getUint16(at, true) + (view.getUint8(at + 2) << 16), flags = view.getUint8(20);
  let orientation = 1;
  for (let at = 12; at + 8 <= view.byteLength; at += 8 + view.getUint32(at + 4, true) + (view.getUint32(at + 4, true) & 1))
    if (text(at, 4) === "EXIF") orientation = exifOrientation(new DataView(view.buffer, view.byteOffset + at + 8));
  return [uint24(24) + 1, uint24(27) + 1, (flags & 0x10) !== 0, orientation];
}

function exifOrientation(view: DataView): number {
  const begin = view.getUint32(0) === 0x45786966 ? 6 : 0, little = view.getUint16(begin) === 0x4949;
  const directory = begin + view.getUint32(begin + 4, little);
  for (let entry = 0; entry < view.getUint16(directory, little); entry++)
    if (view.getUint16(directory + 2 + 12 * entry, little) === 0x0112) {
      const value = view.getUint16(directory + 10 + 12 * entry, little);
      return value >= 1 && value <= 8 ? value : 1;
    }
  return 1;
}
