/** The page of a static site: everything is computed in this browser. */
import type * as Module from "../facerts";
import { message } from "./dom";
import { offer, Page } from "./page";

// The module is a file of its own, which any other page imports in the same way.
const MODULE = "./facerts.js";
const BASE = new URL(".", import.meta.url);

interface Site {
  qualities: { name: string }[];
}

const page = new Page();
let opened: Module.Facerts | null = null;
let wanted = 0;

async function use(quality: string): Promise<void> {
  const own = ++wanted;
  page.say("Loading the models …");
  try {
    const { load }: typeof Module = await import(MODULE);
    const scorer = await load({ base: BASE, quality });
    if (own !== wanted) {
      scorer.close();
      return;
    }
    opened?.close();
    opened = scorer;
    page.use(scorer);
  } catch (error) {
    if (own === wanted) page.say(`The models cannot be loaded: ${message(error)}`);
  }
}

async function start(): Promise<void> {
  const answer = await fetch(new URL("facerts.json", BASE));
  if (!answer.ok) throw new Error(`facerts.json: status ${answer.status}`);
  const names = (await answer.json() as Site).qualities.map(({ name }) => name);
  offer(names, (name) => void use(name));
  await use(names[0] ?? "");
}

page.withCamera();
start().catch((error: unknown) => page.say(`The models cannot be loaded: ${message(error)}`));
// Keeps the site for use without a network; it works as well without.
navigator.serviceWorker?.register("service-worker.js").catch(() => undefined);
