/** Results as the CSV of `facerts score`: the same columns, and the same text in each cell. */
import type { Face, ImageResult } from "../types";

// JSON does not say which numbers are whole by kind; all others have a decimal point.
const INTEGERS = ["face", "rotation", "smaller_faces"];
// To a spreadsheet, a cell that begins with one of these is a formula; a leading quote makes it text.
const FORMULA = /^['=+\-@\t\r\n＝＋－＠]/u;

export interface NamedResult {
  name: string;
  result: ImageResult;
}

/** The rows of images, one per face, or one that says why there is none.
 *
 * @param decided whether a threshold decides, so that an image without a face is rejected.
 */
export function toCsv(images: NamedResult[], columns: string[], modelSha256: string, decided: boolean): string {
  const lines = [columns.map(quoted).join(",")];
  for (const { name, result } of images) {
    const path = storable(name);
    const base = { path, model_sha256: modelSha256 };
    const without = result.error !== null
      ? { error: `${path}: ${storable(result.error)}` }
      : { accepted: decided ? false : null, reasons: ["no_face"] };
    const rows: Record<string, unknown>[] = result.faces.length
      ? result.faces.map((face: Face, index) => ({ ...face, ...base, face: index, points: face.points?.flat() ?? null }))
      : [{ ...base, reasons: [], ...without }];
    for (const row of rows) lines.push(columns.map((column) => cell(row[column], INTEGERS.includes(column))).join(","));
  }
  return `${lines.join("\n")}\n`;
}

function cell(value: unknown, whole: boolean): string {
  if (typeof value === "number") return whole ? String(value) : float(value);
  if (typeof value === "string") return text(value);
  if (typeof value === "boolean") return quoted(String(value));
  if (!Array.isArray(value)) return quoted("");
  return value.length && typeof value[0] === "number" ? quoted(value.map(general).join(" ")) : text(value.join(";"));
}

const text = (value: string): string => quoted(FORMULA.test(value) ? `'${value}` : value);
const quoted = (value: string): string => `"${value.replaceAll('"', '""')}"`;

/** Text that UTF-8 can hold, without NUL. */
function storable(value: string): string {
  return value.replaceAll("\0", "\\x00").replace(/\p{Surrogate}/gu, (half) => `\\u${half.charCodeAt(0).toString(16)}`);
}

const power = (exponent: number): string => `e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
const parts = (scientific: string): [string, number] => {
  const [digits = "", exponent = "0"] = scientific.split("e");
  return [digits, +exponent];
};

/** A number as Python's `repr` gives it. */
function float(value: number): string {
  const [digits, exponent] = parts(value.toExponential());
  const sign = Object.is(value, -0) ? "-" : "";
  if (exponent < -4 || exponent >= 16) return digits + power(exponent);
  const plain = exponent < 0 ? value.toFixed(digits.replace(/[-.]/g, "").length - exponent - 1) : String(value);
  return sign + (plain.includes(".") ? plain : `${plain}.0`);
}

/** A number with at most six digits, as Python's format `g` gives it. */
function general(value: number): string {
  // Between two equally close numbers, Python takes the even one and JavaScript the larger.
  const exact = Math.abs(value).toExponential(60);
  const half = /^(\d\.\d{4}[02468])50*e(.*)$/.exec(exact);
  const [digits, exponent] = parts(half ? `${half[1]}e${half[2]}` : Math.abs(value).toExponential(5));
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const short = (decimal: string): string => decimal.includes(".") ? decimal.replace(/\.?0+$/, "") : decimal;
  if (exponent < -4 || exponent >= 6) return sign + short(digits) + power(exponent);
  return sign + short(Number(`${digits}e${exponent}`).toFixed(5 - exponent));
}
