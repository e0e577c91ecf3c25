"""Write the JSON schemas of result.json and comparison.json in docs/, from the models.

python tools/result_schemas.py

The models are in facerts/evaluation/measure.py, result.py and comparison.py; their descriptions are the text of the
tables that docs/results-schema.md has on the site (``key_tables``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from facerts.evaluation.comparison import Comparison
from facerts.evaluation.measure import ResultPart
from facerts.evaluation.result import Result
from facerts.io.files import atomic_write

DOCS = Path(__file__).parents[1] / "docs"
MODELS: dict[str, type[ResultPart]] = {"result": Result, "comparison": Comparison}

Schema = dict[str, Any]


def main() -> None:
    for path, text in schemas().items():
        with atomic_write(path, "w") as file:
            file.write(text)


def schemas() -> dict[Path, str]:
    """The text of both schema files."""
    return {
        DOCS / f"{name}.schema.json": json.dumps(model.model_json_schema(), indent=1, ensure_ascii=False) + "\n"
        for name, model in MODELS.items()
    }


def key_tables(name: str) -> str:
    """The keys of ``result`` or ``comparison`` as Markdown, for the site."""
    return tables(MODELS[name].model_json_schema())


def tables(schema: Schema) -> str:
    """A table for the whole and for each of its parts, in the order in which they are first mentioned."""
    parts = [schema, *(schema["$defs"][name] for name in mentioned(schema, schema["$defs"]))]
    return "\n".join(text for part in parts for text in table(part, schema["$defs"]))


def mentioned(schema: Schema, parts: Schema) -> list[str]:
    """Names of the parts that have a description of their own."""
    found: list[str] = []
    for name in references(schema["properties"]):
        if "description" in parts[name] and name not in found:
            found += [name, *mentioned(parts[name], parts)]
    return list(dict.fromkeys(found))


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"].rpartition("/")[2]
        for entry in value.values():
            yield from references(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from references(entry)


def table(part: Schema, parts: Schema) -> Iterator[str]:
    yield f"### {part['title']}\n"
    yield f"{' '.join(part['description'].split())}\n"
    yield "| key | value | meaning |\n|---|---|---|"
    required = part.get("required", [])
    for key, field in part["properties"].items():
        optional = "" if key in required else " (may be absent)"
        yield f"| `{key}`{optional} | {value_of(field, parts)} | {field['description']} |"
    yield ""


def value_of(field: Schema, parts: Schema) -> str:
    """What a key holds, in words."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        if "description" in parts[name]:
            return f"[{name}](#{name.lower()})"
        return value_of(parts[name], parts)
    if "anyOf" in field:
        return " or ".join(value_of(choice, parts) for choice in field["anyOf"])
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{choice}`" for choice in field["enum"])
    if "prefixItems" in field:
        return f"[{', '.join(value_of(item, parts) for item in field['prefixItems'])}]"
    if field["type"] == "array":
        return f"list of {value_of(field['items'], parts)}"
    if field["type"] == "object" and "properties" in field:
        entries = (f"`{key}`: {value_of(entry, parts)}" for key, entry in field["properties"].items())
        return f"{{{', '.join(entries)}}}"
    if field["type"] == "object":
        return f"{{name: {value_of(field['additionalProperties'], parts)}}}"
    return {"string": "text", "boolean": "true or false"}.get(field["type"], field["type"])


if __name__ == "__main__":
    main()
