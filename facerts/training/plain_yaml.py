"""YAML of plain values, for recipes and for settings on the command line."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from facerts.errors import Error

# Recipes have a few thousand bytes; PyYAML takes seconds for a million.
MAX_BYTES = 1 << 16


class _Loader(yaml.SafeLoader):
    """A safe loader that rejects references, with which a few lines can expand to billions of values, and keys given
    twice, of which PyYAML would silently take the last.
    """

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, "references (*name) are not allowed; write out the value", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key in [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is given twice; keep one", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse_yaml(text: str | bytes, where: object, *, error: type[Error] = Error) -> Any:
    """The value of a YAML text."""
    if len(text) > MAX_BYTES:
        raise error(f"{where}: {len(text):,} bytes exceed the limit of {MAX_BYTES:,} bytes")
    try:
        return yaml.load(text.decode("utf-8-sig") if isinstance(text, bytes) else text, Loader=_Loader)
    except RecursionError as reason:
        raise error(f"{where}: not valid YAML: nested too deeply") from reason
    except UnicodeDecodeError as reason:
        raise error(f"{where}: not UTF-8 text ({reason}); save it as UTF-8") from reason
    except (yaml.YAMLError, ValueError, OverflowError) as reason:
        # Impossible dates and numbers with thousands of digits raise errors that are not YAMLErrors.
        raise error(f"{where}: not valid YAML: {' '.join(str(reason).split())}") from reason
