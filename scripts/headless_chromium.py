"""Loads a page in headless Chromium (Debian's package `chromium`) and returns its DOM or writes a screenshot.

Uses the standard library only.
"""
import html.parser
import pathlib
import shutil
import subprocess
import tempfile

PATIENCE_S = 120


def find():
    """Returns the path of the browser, or None if it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def _run(url, *flags, virtual_ms, size):
    with tempfile.TemporaryDirectory(prefix="pushpull-chromium-") as profile:
        # The page runs in virtual time, which stops during requests, so the speed of this machine does not matter.
        return subprocess.run(
            [find(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}",
             f"--window-size={size[0]},{size[1]}", f"--virtual-time-budget={virtual_ms}", *flags, url],
            check=True, capture_output=True, timeout=PATIENCE_S)


def dump_dom(url, virtual_ms=4000, size=(1280, 1000)):
    """Returns the page's HTML after `virtual_ms` milliseconds of virtual time."""
    return _run(url, "--dump-dom", virtual_ms=virtual_ms, size=size).stdout.decode()


def screenshot(url, path, virtual_ms=4000, size=(1280, 1000), dark=False):
    """Writes a PNG of the page after `virtual_ms` milliseconds of virtual time."""
    flags = ["--blink-settings=preferredColorScheme=0"] if dark else []
    _run(url, f"--screenshot={pathlib.Path(path).resolve()}", *flags, virtual_ms=virtual_ms, size=size)


class Dom(html.parser.HTMLParser):
    """Parses HTML, such as dump_dom returns.

    `ids` and `clones` map an element's id or data-clone to its tag, attributes and text; `tags` lists all tags.
    """
    VOID = {"meta", "link", "br", "img", "input", "hr"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.ids, self.clones, self.tags = {}, {}, []
        self._open = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        if tag in self.VOID:
            return
        element = {"tag": tag, "attributes": attributes, "text": ""}
        self._open.append(element)
        if "id" in attributes:
            self.ids[attributes["id"]] = element
        if "data-clone" in attributes:
            self.clones[int(attributes["data-clone"])] = element

    def handle_endtag(self, tag):
        while self._open and self._open.pop()["tag"] != tag:
            pass

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data
