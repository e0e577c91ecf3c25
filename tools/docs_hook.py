"""What MkDocs does beyond its configuration: places for the tutorials to run in, and links that leave docs/.

Tutorials run in folders of their own below out/tutorials, made anew for each build, by this Python's ``facerts``.
Of a command that succeeds the page shows standard output alone, without progress bars.

Links that leave docs/ are right in the repository and lead nowhere on the site. Pages named in ``PAGES`` become pages
of the site; links to other files lead to the repository, or are plain text where its address is not known (``repo_url``
of mkdocs.yml).
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import shutil
import sys
import time
from pathlib import Path

from docs_results import markdown as table_of
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from facerts.web import write_site

ROOT = Path(__file__).parents[1]
TUTORIALS = ROOT / "out" / "tutorials"
COLUMNS = "100"
SHELL = """\
set -euo pipefail
facerts() {
  "$FACERTS_PYTHON" -m facerts "$@" 2>"$FACERTS_STDERR" || { status=$?; cat "$FACERTS_STDERR"; return $status; }
}
"""
# Pages outside docs/, and where the site has them.
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "models/facerts-small.md": "models/facerts-small.md",
    "models/facerts-quality.md": "models/facerts-quality.md",
    "models/facerts-quality-int8.md": "models/facerts-quality-int8.md",
    "models/facerts-small-noteacher.md": "models/facerts-small-noteacher.md",
}
LOG = logging.getLogger("mkdocs.hooks.tutorials")
# When the work on a page began, by its path.
BEGAN: dict[str, float] = {}
# A number's interval, which stays on its line.
INTERVAL = re.compile(r"(?<=\d) \[([^\]\s]+), ([^\]\s]+)\]")
UNRUN = re.compile(r"exec=(?:\"|&quot;)")
# A paragraph that is a link to a table.
TABLE = re.compile(r"^\[(?P<title>[^\]]+)\]\((?P<file>tables/\w+\.csv)\)$", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")


def on_post_build(config: MkDocsConfig) -> None:
    """Put the browser page beside the pages, for docs/browser.md's "Try it"."""
    write_site(Path(config.site_dir) / "try", "facerts-small")


def on_pre_build(config: MkDocsConfig) -> None:
    """Make the tutorials' folders, and tell their shells what to run."""
    shutil.rmtree(TUTORIALS, ignore_errors=True)
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")):
        (TUTORIALS / page.stem).mkdir(parents=True)
    start = TUTORIALS / "start.sh"
    start.write_text(SHELL, encoding="utf-8")
    os.environ |= {
        "BASH_ENV": str(start),
        "COLUMNS": COLUMNS,
        "FACERTS_PYTHON": sys.executable,
        "FACERTS_STDERR": str(TUTORIALS / "stderr"),
    }
    sys.path.insert(0, str(ROOT / "tools"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are outside docs/."""
    for path, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn links between docs/ and the rest of the repository into links of the site; keep intervals on one line."""
    paths = {uri: path for path, uri in PAGES.items()}
    here = page.file.src_uri
    BEGAN[here] = time.monotonic()
    path = paths.get(here, posixpath.join("docs", here))

    def rewritten(link: re.Match[str]) -> str:
        text, target, anchor = link["text"], link["target"], link["anchor"] or ""
        to = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if ":" in target or not (ROOT / to).exists():
            return link[0]  # another site's, or one that MkDocs names as broken
        uri = PAGES.get(to, to.removeprefix("docs/") if to.startswith("docs/") else None)
        if uri is None:
            return f"[{text}]({config.repo_url}/blob/main/{to}{anchor})" if config.repo_url else text
        return f"[{text}]({posixpath.relpath(uri, posixpath.dirname(here) or '.')}{anchor})"

    def table(link: re.Match[str]) -> str:
        """The table that a link leads to, which the repository's own pages cannot show; results are folded."""
        fold = "" if here.startswith("results/") else " open"
        title, rows = link["title"].replace("`", ""), table_of(ROOT / "docs" / posixpath.dirname(here) / link["file"])
        return (
            f'<details class="table" markdown="1"{fold}><summary>{title}</summary>\n\n{rows}\n\n'
            f"[As CSV]({link['file']})\n\n</details>"
        )

    return INTERVAL.sub("\u00a0[\\1,\u00a0\\2]", TABLE.sub(table, LINK.sub(rewritten, markdown)))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Say how long a tutorial took; refuse a block that was to be run and was not, which Markdown passes over."""
    here = page.file.src_uri
    if here.startswith("tutorials/"):
        LOG.info("%s: %.0f seconds", here, time.monotonic() - BEGAN[here])
    if UNRUN.search(html):
        raise PluginError(f"{here}: a block with exec was not run; see the options of its fence")
