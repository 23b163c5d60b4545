"""Check the built documentation site in a browser; the end of `make docs` runs `python -m tests.site_check out/site`.

Each query must find its page first, and no page may be wider than a phone.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.view.browser import Browser, Tab, wait_until

QUERIES = {
    "IMU noise density": "sensors/imu",
    "deskew": "sensors/lidar",
    "ros2 bag": "recording",
    "first_env": "conventions",
    "install": "index",
    "custom sensor": "extending",
    "train a policy": "tutorials/train_a_policy",
    "contact force": "sensors/contact_force",
    "ImuCfg": "reference/api-sensors-inertial",
    "mjlab": "mjlab",
}
"""Words that users look for, and the page that answers them."""
PHONE = (390, 844)
"""Size of a narrow screen, px."""

WIDE = """[...document.querySelectorAll('article *')].filter(each =>
  each.getBoundingClientRect().right > innerWidth + 1 && !each.closest('pre, .table-wrapper')
).map(each => `${each.tagName} ${each.textContent.trim().slice(0, 40)}`)[0]"""
"""JavaScript: the first element that a narrow screen cuts off. Code and tables scroll."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass

    def copyfile(self, source: Any, outputfile: Any) -> None:
        try:
            super().copyfile(source, outputfile)
        except ConnectionError:  # the browser has left the page
            pass


def first_hit(tab: Tab, base: str, query: str) -> str:
    """Return the first result of the site's search: the page without suffix and section."""
    tab("Page.navigate", url=f"{base}search.html?q={quote(query)}")
    state = f"location.search.includes({quote(query)!r}) && document.querySelector('.search-summary')?.innerText"
    wait_until(lambda: tab.evaluate(state))
    found = tab.evaluate("document.querySelector('ul.search a')?.getAttribute('href')")
    return str(found).partition(".html")[0]


def faults(folder: Path) -> list[str]:
    """Return what is wrong with a site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base, found = f"http://127.0.0.1:{server.server_port}/", []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        tab = browser.open("about:blank")
        tab.resize(PHONE)
        for query, page in QUERIES.items():
            if (hit := first_hit(tab, base, query)) != page:
                found.append(f"The search for {query!r} finds {hit} first instead of {page}.")
        for path in sorted(folder.rglob("*.html")):
            page = path.relative_to(folder).as_posix()
            if page.startswith(("_modules/", "reference/api")):
                continue
            tab("Page.navigate", url=base + page)
            wait_until(
                lambda page=page: tab.evaluate(f"location.href.endsWith({page!r}) && document.readyState == 'complete'")
            )
            if wide := tab.evaluate(WIDE):
                found.append(f"{page}: wider than a screen of {PHONE[0]} px: {wide}")
        browser.close()
    server.shutdown()
    return found


if __name__ == "__main__":
    if not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        missing = "The site was not checked: the system package chromium is missing."
        sys.exit(missing) if os.environ.get("SENSORIUM_REQUIRE_PACKAGES") else print(missing)
    elif wrong := faults(Path(sys.argv[1])):
        sys.exit("\n".join(wrong))
