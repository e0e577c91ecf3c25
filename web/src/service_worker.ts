/** Keeps the files of the site, so that it works without a network, and says with each what it may do. */

interface SiteFiles {
  version: string;
  files: string[];
}

// `facerts web` writes the list before this script.
const scope = self as unknown as ServiceWorkerGlobalScope & { site: SiteFiles };
const { version, files } = scope.site;
const PREFIX = "facerts ", CACHE = PREFIX + version;
const HEADERS = {
  // Isolated from other pages, where threads may share memory.
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; connect-src 'self'; style-src 'self'; " +
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
};

scope.addEventListener("install", (event) => {
  const all = [new URL("./", scope.registration.scope).href, ...files];
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(all)).then(() => scope.skipWaiting()));
});

scope.addEventListener("activate", (event) => {
  const old = async () => {
    for (const name of await caches.keys()) if (name.startsWith(PREFIX) && name !== CACHE) await caches.delete(name);
  };
  event.waitUntil(old().then(() => scope.clients.claim()));
});

scope.addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || new URL(request.url).origin !== scope.location.origin) return;
  event.respondWith(answer(request));
});

async function answer(request: Request): Promise<Response> {
  const cache = await caches.open(CACHE);
  const response = (await cache.match(request, { ignoreSearch: true })) ?? (await fetch(request));
  const headers = new Headers(response.headers);
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
