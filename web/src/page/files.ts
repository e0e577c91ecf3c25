/** Images from what was chosen, dropped or pasted. */

/** An image with the name that the page shows: within a folder, its path. */
export interface NamedFile {
  name: string;
  file: File;
}

const IMAGE = /\.(jpe?g|png|webp|bmp|gif|tiff?|heic|heif|avif)$/i;

/** Of a folder, only images are taken; single files are all, as whoever chose them wants to know what is wrong. */
const isImage = ({ name }: NamedFile): boolean => IMAGE.test(name) && !name.split("/").some((part) => part.startsWith("."));

const byName = (one: NamedFile, other: NamedFile): number => one.name.localeCompare(other.name, "en", { numeric: true });

/** The files of an input, and how many files of a folder are no images. */
export function chosen(files: Iterable<File>): [NamedFile[], number] {
  const named = [...files].map((file) => ({ name: file.webkitRelativePath || file.name, file }));
  if (!named.some(({ name }) => name.includes("/"))) return [named, 0];
  const images = named.filter(isImage).sort(byName);
  return [images, named.length - images.length];
}

/** Likewise of what was dropped or pasted, with the images of its folders. */
export async function transferred(data: DataTransfer): Promise<[NamedFile[], number]> {
  // Entries are gone once this function has waited for anything.
  const entries = [...data.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry != null);
  if (!entries.some((entry) => entry.isDirectory)) return chosen(data.files);
  const single: NamedFile[] = [], inside: NamedFile[] = [];
  for (const entry of entries) await collect(entry, entry.isDirectory ? inside : single);
  const images = inside.filter(isImage).sort(byName);
  return [[...single, ...images], inside.length - images.length];
}

async function collect(entry: FileSystemEntry, into: NamedFile[]): Promise<void> {
  if (!entry.isDirectory) {
    const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject)).catch(() => null);
    if (file) into.push({ name: entry.fullPath.replace(/^\//, ""), file });
    return;
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  for (;;) {
    // A reader gives at most a hundred entries at a time, and none at the end.
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject)).catch(() => []);
    if (!some.length) return;
    for (const inner of some) await collect(inner, into);
  }
}
