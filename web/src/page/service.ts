/** The page of a service: images are sent to it. */
import type { ImageResult, ImageSource, ScoreOptions, Verification, VerifyOptions } from "../types";
import { el, message } from "./dom";
import type { PageModel, PageScorer } from "./model";
import { Page } from "./page";

class Unauthorized extends Error {}

type Problem = { error?: string; images?: ImageResult[] };

class Service implements PageScorer {
  private constructor(readonly model: PageModel, private readonly token: string) {}

  static async open(token: string): Promise<Service> {
    return new Service(await ask<PageModel>(token, "v1/model"), token);
  }

  async read(image: ImageSource, { signal, ...options }: ScoreOptions = {}): Promise<ImageResult> {
    const path = `v1/${this.model.gallery ? "search" : "score"}?${parameters(options)}`;
    const answer = await this.post<{ images: ImageResult[] }>(path, image as Blob, signal);
    const [result] = answer.images;
    if (!result) throw new Error("The service did not answer for this image.");
    return result;
  }

  async verify(first: ImageSource, second: ImageSource, { signal, ...options }: VerifyOptions = {}): Promise<Verification> {
    const form = new FormData();
    for (const image of [first, second]) form.append("image", image as Blob);
    const answer = await this.post<Verification & Problem>(`v1/verify?${parameters(options)}`, form, signal);
    if (answer.error) throw new Error(answer.error);
    return answer;
  }

  private post<T>(path: string, body: BodyInit, signal: AbortSignal | undefined): Promise<T> {
    return ask(this.token, path, { method: "POST", body, signal: signal ?? null }).catch((error: unknown) => {
      if (error instanceof Unauthorized) askForToken(error.message);
      throw error;
    }) as Promise<T>;
  }
}

function parameters(options: object): URLSearchParams {
  return new URLSearchParams(Object.entries(options).filter(([, value]) => value !== undefined).map(([name, value]) => [name, String(value)]));
}

/** What the service answers; results for each image come with the error. */
async function ask<T>(token: string, path: string, init: RequestInit = {}): Promise<T> {
  const headers: HeadersInit = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { ...init, headers, cache: "no-store" });
  if (answer.status === 401) throw new Unauthorized("This service requires a token.");
  const body = await answer.json().catch((): Problem => ({ error: `The service returned status ${answer.status} without a reason.` })) as Problem;
  if (!answer.ok && !body.images) throw new Error(body.error);
  return body as T;
}

const page = new Page();

function askForToken(problem: string): void {
  el("key-problem").textContent = problem;
  el("key").hidden = false;
  el("token").focus();
}

async function start(token: string): Promise<void> {
  try {
    page.use(await Service.open(token));
    el("key").hidden = true;
  } catch (error) {
    if (error instanceof Unauthorized) askForToken(token && "Wrong token.");
    else page.say(message(error));
  }
}

el("key").addEventListener("submit", (event) => {
  event.preventDefault();
  const input = el<HTMLInputElement>("token"), token = input.value.trim();
  input.value = "";
  void start(token);
});
el("pages").hidden = false;
el("privacy").textContent = "Images are sent to this service only, which does not keep them.";
void start("");
