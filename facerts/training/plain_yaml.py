"""YAML of plain values, as recipes and settings on the command line are."""

from __future__ import annotations

from typing import Any

import yaml

from facerts.errors import Error

# Recipes have a few thousand bytes; PyYAML takes seconds for a million.
LARGEST = 1 << 16


class _Loader(yaml.SafeLoader):
    """Without references: a few lines of them can stand for billions of values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, "found a reference; write out what it stands for", event.start_mark
            )
        return super().compose_node(parent, index)


def parse_yaml(text: str | bytes, where: object, *, error: type[Error] = Error) -> Any:
    """What a YAML text holds.

    Args:
        text: as text, or encoded as UTF-8.
        where: it comes from, for the error.
        error: to raise.

    Raises:
        Error: of that type; it is not YAML, is too large, or has references.
    """
    if len(text) > LARGEST:
        raise error(f"{where}: {len(text):,} bytes are more than the limit of {LARGEST:,}")
    try:
        return yaml.load(text.decode("utf-8-sig") if isinstance(text, bytes) else text, Loader=_Loader)
    except RecursionError as reason:
        raise error(f"{where}: not valid YAML: it is nested too deep") from reason
    except UnicodeDecodeError as reason:
        raise error(f"{where}: not UTF-8 text ({reason}); save it as UTF-8") from reason
    except (yaml.YAMLError, ValueError, OverflowError) as reason:
        # Dates that there are not, and numbers of thousands of digits, are no errors of YAML's.
        raise error(f"{where}: not valid YAML: {' '.join(str(reason).split())}") from reason
