"""Times of the browser module in headless Chromium beside Python: a crop, a photo, and the first load.

python tools/bench_web.py --rounds 20

needs Playwright and Chromium. The candidates take turns; ratios are of medians, to Python with one thread.
"""

from __future__ import annotations

import base64
import gzip
import shutil
import statistics
import tempfile
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import skimage.data
from bench import alternate, machine, parser_of, with_quartiles
from playwright.sync_api import Browser, Page, sync_playwright

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.images import encode_png
from facerts.web import write_site

QUALITIES = "facerts-quality", "facerts-quality-int8"
LOAD = "async (options) => { window.facerts = await (await import('/facerts.js')).load(options); }"
TIME = """async (content) => {
  const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0)), began = performance.now();
  await window.facerts.score(new Blob([bytes]));
  return (performance.now() - began) / 1000;
}"""


class Isolated(SimpleHTTPRequestHandler):
    """Static files, with the headers that let threads share memory."""

    def end_headers(self) -> None:
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    options = parser_of(__doc__, {}, rounds=20).parse_args()
    images = {"crop": encode_png(draw_face(0, 0)), "photo": encode_png(skimage.data.astronaut())}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        sizes = write_site(folder)
        (Path(folder) / "empty.html").write_text("<!doctype html><title>empty</title>", encoding="utf-8")
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Isolated, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        print(machine())
        first_load(browser, address, Path(folder), sizes, options.rounds)
        pages = {
            f"{name}, Chromium, {threads} thread{'s' * (threads > 1)}": opened(browser, address, name, threads)
            for name in QUALITIES
            for threads in (1, 2)
        }
        scorers = {f"{name}, Python, 1 thread": facerts.load(quality=name, threads=1) for name in QUALITIES}
        for kind, content in images.items():
            encoded = base64.b64encode(content).decode()
            work: dict[str, Any] = {name: partial(scorer.score, content) for name, scorer in scorers.items()}
            work = {name: partial(seconds, call) for name, call in work.items()}
            work |= {name: partial(page.evaluate, TIME, encoded) for name, page in pages.items()}
            taken = alternate(work, options.rounds, warm_up=3)
            python = statistics.median(taken["facerts-quality, Python, 1 thread"])
            for name, times in taken.items():
                milliseconds = with_quartiles([1000 * value for value in times], ".1f")
                print(f"{kind}: {name}: {milliseconds} ms, {statistics.median(times) / python:.2f} of Python")
        browser.close()
        server.shutdown()


def seconds(call: Any) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def opened(browser: Browser, address: str, quality: str, threads: int) -> Page:
    """A page of its own with the module."""
    page = browser.new_context().new_page()
    page.goto(f"{address}/empty.html")
    page.evaluate(LOAD, {"quality": quality, "threads": threads})
    return page


def first_load(browser: Browser, address: str, folder: Path, sizes: dict[str, int], rounds: int) -> None:
    """Seconds until the page can score, and what was loaded for it, as it is and compressed."""
    taken, names = [], set[str]()
    for _ in range(max(3, rounds // 4)):
        context = browser.new_context(service_workers="block")
        page = context.new_page()
        page.on("request", lambda request: names.add(request.url.rpartition("/")[2] or "index.html"))
        began = time.perf_counter()
        page.goto(f"{address}/")
        page.locator("#about").wait_for()
        taken.append(time.perf_counter() - began)
        context.close()
    loaded = sorted(names & set(sizes))
    packed = sum(len(gzip.compress((folder / name).read_bytes())) for name in loaded)
    raw = sum(sizes[name] for name in loaded)
    print(f"first load: {with_quartiles(taken)} s, {raw / 1000:,.0f} KB, {packed / 1000:,.0f} KB compressed")


if __name__ == "__main__":
    main()
