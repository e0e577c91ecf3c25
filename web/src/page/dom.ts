/** Elements, and numbers as people read them. */

export type Child = Node | string | null | undefined | false;

/** A new element; properties that it lacks become attributes. */
export function make<T extends keyof HTMLElementTagNameMap>(
  tag: T,
  properties: Record<string, unknown> = {},
  ...children: Child[]
): HTMLElementTagNameMap[T] {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in node) (node as unknown as Record<string, unknown>)[name] = value;
    else node.setAttribute(name, String(value));
  }
  node.append(...children.filter((child): child is Node | string => Boolean(child)));
  return node;
}

/** A table that scrolls where it is too wide. */
export function table(head: string[], rows: Child[][]): Node {
  const line = (tag: "th" | "td", cells: Child[]): Node => make("tr", {}, ...cells.map((cell) => make(tag, {}, cell)));
  return make("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: head.join(", ") },
    make("table", {}, make("thead", {}, line("th", head)), make("tbody", {}, ...rows.map((row) => line("td", row)))));
}

/** The element of the page with an id. */
export function el<T extends HTMLElement = HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

/** Give the user a file. */
export function download(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

export const number = (value: number | null, digits = 3): string => value === null ? "–" : value.toFixed(digits).replace(/^-(?=.*[1-9])/, "−").replace(/^-/, "");
export const percent = (share: number): string => `${+(100 * share).toPrecision(3)}%`;
export const plural = (count: number, one: string, many = `${one}s`): string => `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
export const message = (error: unknown): string => error instanceof Error ? error.message : String(error);
