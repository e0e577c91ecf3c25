// Builds what ships in facerts/web/static: `npm ci && npm run build`, or `make web`.
import { build } from "esbuild";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { gzipSync } from "node:zlib";

const out = "../facerts/web/static";
const ort = "node_modules/onnxruntime-web";

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
await build({
  entryPoints: {
    facerts: "src/facerts.ts",
    "facerts-worker": "src/worker.ts",
    local: "src/page/local.ts",
    service: "src/page/service.ts",
    reference: "src/page/reference.ts",
    page: "src/page/page.css",
    "service-worker": "src/service_worker.ts",
  },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  // One file for the module, which the page imports as any other page would.
  external: ["./facerts.js"],
  legalComments: "none",
  logLevel: "info",
});

// One page for both: a service has its own script, and what documents it.
const page = readFileSync("src/page/index.html", "utf8");
writeFileSync(`${out}/index.html`, page);
writeFileSync(`${out}/service.html`, page.replace("local.js", "service.js"));
cpSync("src/page/reference.html", `${out}/reference.html`);

// The runtime, compressed, so that it is a quarter of its size on any server.
writeFileSync(`${out}/ort.wasm.gz`, gzipSync(readFileSync(`${ort}/dist/ort-wasm-simd-threaded.wasm`), { level: 9 }));
cpSync(`${ort}/dist/ort-wasm-simd-threaded.mjs`, `${out}/ort.mjs`);
cpSync("src/LICENSES.txt", `${out}/LICENSES.txt`);

// The types of the module in one file.
const types = mkdtempSync(`${tmpdir()}/types-`);
execFileSync("node_modules/.bin/tsc", ["--declaration", "--emitDeclarationOnly", "--stripInternal", "--outDir", types]);
const [shared, module] = ["types", "facerts"].map((name) => readFileSync(`${types}/${name}.d.ts`, "utf8"));
writeFileSync(`${out}/facerts.d.ts`, `${shared}\n${module.replace(/^(import|export) type .*\n/gm, "")}`);
rmSync(types, { recursive: true });
