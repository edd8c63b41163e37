"""A tab of the system's Chromium, driven by Playwright."""

import contextlib
import json
import shutil
import time

import numpy as np
from playwright.sync_api import Error, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-quic", "--no-first-run"]
PIXELS = """(() => { const canvas = document.querySelector(%s);
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const bytes = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    return [canvas.height, canvas.width, Array.from(bytes, (byte) => String.fromCharCode(byte)).join('')] })()"""


@contextlib.contextmanager
def launch_chromium():
    """A headless browser; closed at the end."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Browser:
    """One tab with its own storage. `errors` are exceptions, console errors and warnings; `requests` are addresses."""

    def __init__(self, chromium, **options):
        self.page = chromium.new_context(**options).new_page()
        self.session = self.page.context.new_cdp_session(self.page)
        self.errors, self.requests, self.address = [], [], ""
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self.note_message)
        self.page.on("request", lambda request: self.requests.append(request.url))  # without data: addresses
        self.run = self.page.evaluate  # the value of a JavaScript expression; a promise is awaited
        self.press = self.page.keyboard.press
        self.type = self.page.keyboard.insert_text

    def note_message(self, message):
        if message.type in ("error", "warning", "assert"):
            self.errors.append(message.text)

    def open(self, path, width=1280, height=900, scheme="light", media="screen"):
        """Load a file in a window of that size; returns the seconds until it was loaded."""
        self.page.set_viewport_size({"width": width, "height": height})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.session.send("Emulation.setDeviceMetricsOverride", size)  # Playwright: mobile for a whole context only
        self.page.emulate_media(color_scheme=scheme)
        self.errors.clear()
        self.requests.clear()
        self.address = path.resolve().as_uri()
        start = time.monotonic()
        self.page.goto(self.address)
        seconds = time.monotonic() - start
        self.page.emulate_media(media=media)  # not before: the load resets it
        return seconds

    def assert_quiet(self):
        """No message on the console, no exception, and no request except for the file itself."""
        assert self.errors == []
        assert set(self.requests) == {self.address}

    def choose(self, selector, value):
        """Give a field a value as a user does."""
        self.run(f"""(() => {{ const field = document.querySelector({json.dumps(selector)});
            field.value = {json.dumps(value)};
            for (const kind of ['input', 'change']) field.dispatchEvent(new Event(kind, {{ bubbles: true }})) }})()""")

    def wait(self, condition):
        """Wait up to 30 s until a JavaScript expression is true; Playwright's wait needs eval, which pages forbid."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with contextlib.suppress(Error):  # of a page that is being left
                if self.run(condition):
                    return
            self.page.wait_for_timeout(20)
        raise TimeoutError(condition)

    def show_figure(self, selector):
        """Scroll to a figure and wait until its charts that can be seen are drawn."""
        self.run(f"document.querySelector('{selector}').scrollIntoView({{ behavior: 'instant' }})")
        plots = f"[...document.querySelectorAll('{selector} .plot')].filter((plot) => plot.offsetParent)"
        self.wait(f"{plots}.every((plot) => plot.querySelector('svg'))")

    def find_mark(self, selector, condition):
        """The place [x, y] in the window of a mark of a chart that meets a condition on its `datum` and is on top."""
        return self.run(f"""(() => {{
            for (const mark of document.querySelectorAll('{selector} .mark-symbol path')) {{
                const {{ datum }} = mark.__data__;
                const {{ x, y, width, height }} = mark.getBoundingClientRect();
                const at = [x + width / 2, y + height / 2];
                if ({condition} && document.elementFromPoint(...at)?.__data__?.datum === datum) return at;
            }}
        }})()""")

    def read_pixels(self, selector):
        """Red, green, blue and opacity of a canvas: uint8 (height, width, 4)."""
        height, width, characters = self.run(PIXELS % json.dumps(selector))
        return np.frombuffer(characters.encode("latin-1"), np.uint8).reshape(height, width, 4)
