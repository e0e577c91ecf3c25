/** The reference of a service's API, from its OpenAPI schema. */
import { el, make, message, table, type Child } from "./dom";

interface Schema {
  $ref?: string;
  anyOf?: Schema[];
  oneOf?: Schema[];
  const?: unknown;
  enum?: unknown[];
  type?: string;
  format?: string;
  prefixItems?: Schema[];
  items?: Schema;
  minItems?: number;
  maxItems?: number;
  additionalProperties?: unknown;
  properties?: Record<string, Schema>;
  description?: string;
}

type Content = Record<string, { schema?: Schema }>;

interface Operation {
  operationId: string;
  description?: string;
  summary?: string;
  security?: unknown;
  requestBody?: { content: Content };
  parameters?: { name: string; schema: Schema; description?: string }[];
  responses: Record<string, { description: string; content?: Content }>;
}

interface OpenApi {
  info: { summary: string; version: string };
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, Schema> };
}

/** The type of a schema in a word or two, with links to the schemas described below. */
function kind(schema: Schema): Node {
  if (schema.$ref) {
    const name = schema.$ref.split("/").pop() ?? "";
    return make("a", { href: `#${name}` }, name);
  }
  const any = schema.anyOf ?? schema.oneOf;
  if (any) return make("span", {}, ...any.flatMap((one, index) => index ? [" or ", kind(one)] : [kind(one)]));
  if (schema.const !== undefined) return make("code", {}, JSON.stringify(schema.const));
  if (schema.enum) return make("span", {}, schema.enum.map((value) => JSON.stringify(value)).join(", "));
  const { prefixItems, items = {} } = schema;
  if (schema.type === "array" && prefixItems?.[0]) return make("span", {}, `${prefixItems.length} of `, kind(prefixItems[0]));
  if (schema.type === "array") {
    const fixed = schema.minItems && schema.minItems === schema.maxItems;
    return make("span", {}, fixed ? `${schema.minItems} of ` : "list of ", kind(items));
  }
  if (schema.type === "object" && schema.additionalProperties) return make("span", {}, "map of ", kind(schema.additionalProperties as Schema));
  return document.createTextNode(schema.format === "binary" ? "file" : schema.type ?? "anything");
}

const fields = (properties: Record<string, Schema> = {}): Child[][] =>
  Object.entries(properties).map(([name, field]) => [make("code", {}, name), kind(field), field.description]);

function operation(path: string, method: string, described: Operation): HTMLElement {
  const { description, summary, security, requestBody, parameters, responses } = described;
  const node = make("section", {}, make("h2", { id: described.operationId }, make("b", {}, method.toUpperCase()), path));
  for (const text of (description ?? summary ?? "").split(/\n\n+/)) node.append(make("p", {}, text.replaceAll("`", "")));
  if (security) node.append(make("p", { className: "quiet" }, "Requires the service's token: Authorization: Bearer TOKEN."));
  if (requestBody) node.append(...body(path, requestBody.content, Boolean(security)));
  if (parameters)
    node.append(make("h3", {}, "Query parameters"),
      table(["Parameter", "Type", "Description"], parameters.map((one) => [make("code", {}, one.name), kind(one.schema), one.description])));
  const answers = Object.entries(responses).map(([status, answer]): Child[] => {
    const [type, content] = Object.entries(answer.content ?? {})[0] ?? [];
    return [status, content && kind(content.schema ?? {}), `${answer.description}${type && type !== "application/json" ? `, ${type}` : ""}`];
  });
  node.append(make("h3", {}, "Responses"), table(["Status", "Type", "Description"], answers));
  return node;
}

/** What a request brings, with an example of each way. */
function body(path: string, content: Content, guarded: boolean): Node[] {
  const form = content["multipart/form-data"]?.schema?.properties ?? {}, keys = content["application/json"]?.schema?.properties ?? {};
  const [noun = "image"] = Object.keys(form), file = noun === "video" ? "clip.mp4" : "a.jpg";
  const several = (keys[`${noun}s`]?.minItems ?? 0) > 1, alone = "application/octet-stream" in content;
  const curl = `curl ${guarded ? `-H "Authorization: Bearer $FACERTS_TOKEN" ` : ""}`, url = new URL(path.slice(1), location.href);
  const base64 = (name: string): string => `"'$(base64 -w0 ${name})'"`;
  const examples = [
    `${curl}-F ${noun}=@${file} ${several ? `-F ${noun}=@b.jpg ` : ""}${url}`,
    alone && `${curl}--data-binary @${file} ${url}`,
    `echo '{${several ? `"${noun}s": [${base64(file)}, ${base64("b.jpg")}]` : `"${noun}": ${base64(file)}`}}' | ${curl}-d @- ${url}`,
  ];
  return [
    make("h3", {}, "Body"),
    make("p", {}, `A form with files under any names, ${alone ? `one ${noun} as it is with any content type, ` : ""}or JSON with base64:`),
    make("pre", { tabIndex: 0 }, examples.filter(Boolean).join("\n")),
    make("h3", {}, "Form fields, or keys of JSON"), table(["Name", "Type", "Description"], fields({ ...keys, ...form })),
  ];
}

async function start(): Promise<void> {
  const schema = await (await fetch("openapi.json")).json() as OpenApi;
  el("summary").textContent = `${schema.info.summary} Version ${schema.info.version}.`;
  const found = Object.entries(schema.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]) => operation(path, method, described)));
  // What most people look for comes first.
  const first = (node: HTMLElement): number => +(node.textContent ?? "").includes("/v1/");
  found.sort((one, other) => first(other) - first(one));
  const models = Object.entries(schema.components.schemas).map(([name, model]) =>
    make("section", {}, make("h2", { id: name }, name), make("p", {}, (model.description ?? "").split("\n\n")[0]),
      table(["Field", "Type", "Description"], fields(model.properties))));
  el("schema").replaceChildren(...found, ...models);
  if (location.hash) el(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

start().catch((error: unknown) => {
  el("schema").replaceChildren(make("p", { className: "problem" }, `The schema cannot be read: ${message(error)}`));
});
