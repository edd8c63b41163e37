"""The report in a browser: headless Chromium, driven over its debugging pipe."""

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import time

import pytest
from test_report_study import make_study

from vitlab.reports.html import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine opens the page")
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
FLAGS += " --disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars"


class Browser:
    """One tab. `errors` are uncaught exceptions, console errors and blocked loads; `requests` every address asked."""

    def __init__(self, profile):
        ours, theirs = os.pipe(), os.pipe()  # what we read, what we write

        def connect():
            for end, number in ((theirs[0], 10), (ours[1], 11), (10, 3), (11, 4)):
                os.dup2(end, number)
                os.set_inheritable(number, True)

        command = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(
            command, preexec_fn=connect, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(theirs[0])
        os.close(ours[1])
        self.read, self.write = ours[0], theirs[1]
        self.numbers, self.rest = itertools.count(1), b""
        self.errors, self.requests, self.loaded = [], [], False
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def receive(self, seconds=60):
        end = time.monotonic() + seconds
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            self.rest += os.read(self.read, 1 << 20)
        text, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(text)
        self.note(message.get("method"), message.get("params", {}))
        return message

    def note(self, method, params):
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, path, width=1280, height=900, scheme="light", media=""):
        """Load a file in a window of that size; gives the seconds until it was loaded."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)
        self.errors, self.requests, self.loaded = [], [], False
        start = time.monotonic()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self.loaded:
            self.receive()
        return time.monotonic() - start

    def run(self, script):
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path):
        """The whole page, however tall."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        with contextlib.suppress(OSError, AssertionError):
            self.session = None
            self.call("Browser.close")
        os.close(self.read)
        os.close(self.write)
        self.process.wait(20)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return write_report(make_study(tmp_path_factory.mktemp("studies") / "quick").folder)


@needs_chromium
def test_opens_without_an_error_or_a_request(browser, page):
    seconds = browser.open(page)
    assert browser.errors == []
    assert [address for address in browser.requests if not address.startswith("data:")] == [page.resolve().as_uri()]
    assert browser.run("document.querySelectorAll('.plot .main-svg .scatterlayer .trace').length") > 20
    assert seconds < 20  # under 2 on an idle machine


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_narrow_page_does_not_scroll_sideways(browser, page, scheme):
    browser.open(page, width=400, scheme=scheme)
    assert browser.run("document.documentElement.scrollWidth") == 400
    assert browser.run("document.querySelector('#runs-table').offsetWidth") > 400  # inside a box that scrolls
    widths = browser.run("[...document.querySelectorAll('.plot .main-svg')].map(s => s.getBoundingClientRect().width)")
    assert max(widths) < 400
    assert browser.errors == []


@needs_chromium
def test_theme_follows_the_system_and_the_button(browser, page):
    look = """(() => { const tick = document.querySelector('.plot .xtick text');
        return [getComputedStyle(document.body).backgroundColor, getComputedStyle(tick).fill] })()"""
    browser.open(page, scheme="light")
    light = browser.run(look)
    browser.open(page, scheme="dark")
    dark = browser.run(look)
    assert light[0] == "rgb(252, 252, 251)"
    assert dark[0] == "rgb(19, 21, 25)"
    assert light[1] != dark[1]
    browser.run("document.querySelector('#theme').click()")
    assert browser.run(look) == light
    browser.open(page, scheme="dark")
    assert browser.run(look) == light  # it was remembered
    browser.run("localStorage.clear()")


@needs_chromium
def test_table_is_sorted_and_filtered_by_keyboard(browser, page):
    browser.open(page)
    heading = "document.querySelectorAll('#runs-table thead button')[3]"  # run, examples, seed, accuracy
    values = "[...document.querySelectorAll('#runs-table tbody tr')].map(r => Number(r.cells[3].dataset.value))"
    for order in ("ascending", "descending"):
        browser.run(f"{heading}.focus()")
        for kind in ("keyDown", "keyUp"):
            key = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
            browser.call("Input.dispatchKeyEvent", type=kind, **key)
        found = browser.run(values)
        assert found == sorted(found, reverse=order == "descending")
        assert browser.run(f"{heading}.parentElement.getAttribute('aria-sort')") == order
        assert browser.run("document.querySelector('#announce').textContent") == f"15 runs, sorted by accuracy, {order}"
    browser.run("document.querySelector('#filter').focus()")
    browser.call("Input.insertText", text="vit s1")
    shown = browser.run("[...document.querySelectorAll('#runs-table tbody tr:not([hidden]) a[href$=\"-s1/\"]')].length")
    assert shown == 4
    assert browser.run("document.querySelector('#announce').textContent").startswith("4 of 15 runs")


@needs_chromium
def test_point_opens_its_run(browser, page):
    browser.open(page)
    browser.run("document.querySelector('#filter').value = 'nothing'")
    browser.run("""document.querySelector('.plot').emit('plotly_click',
        {points: [{customdata: 'resnet_nano-n500-s1/'}], event: {}})""")
    assert browser.run("document.querySelector('tr.found').dataset.run") == "resnet_nano-n500-s1/"
    assert browser.run("document.activeElement === document.querySelector('tr.found')")
    assert browser.run("document.querySelector('tr.found').hidden") is False


@needs_chromium
def test_legend_hides_a_curve_in_every_panel(browser, page):
    browser.open(page)
    traces = "document.querySelectorAll('#figure-3 .scatterlayer .trace').length"
    before = browser.run(traces)
    browser.run("document.querySelector('#figure-3 .keys button').click()")
    assert browser.run(traces) == before - 8  # four sizes, two seeds
    assert browser.run("document.querySelector('#figure-3 .keys button').getAttribute('aria-pressed')") == "false"


@needs_chromium
def test_models_are_chosen_where_there_are_many(browser, tmp_path):
    models = {"vit_a": "vit", "vit_b": "vit", "resnet_a": "resnet", "<i>mixer</i>": "mixer"}
    study = make_study(tmp_path / "many", models={m.replace("/", "|"): f for m, f in models.items()}, sizes=(500, 2000))
    browser.open(write_report(study.folder))
    chooser = "document.querySelector('figure select')"
    traces = f"{chooser}.closest('figure').querySelectorAll('.scatterlayer .trace').length"
    assert browser.run(f"{chooser}.value") == "vit_a"
    assert browser.run(traces) == 8
    browser.run(f"{chooser}.value = ''; {chooser}.dispatchEvent(new Event('change'))")
    assert browser.run(traces) == 30  # of 16 runs one failed
    assert browser.errors == []


@needs_chromium
def test_print_shows_the_still_figures(browser, page):
    browser.open(page, width=794, scheme="dark", media="print")
    shown = "[...document.querySelectorAll('%s')].map(e => getComputedStyle(e).display)"
    assert set(browser.run(shown % ".plot")) == {"none"}
    assert set(browser.run(shown % "img.static")) == {"block"}
    assert browser.run("getComputedStyle(document.body).color") == "rgb(27, 29, 33)"
    assert browser.run("document.documentElement.scrollWidth") <= 794


@needs_chromium
def test_no_other_script_runs_and_nothing_is_loaded(browser, page):
    browser.open(page)
    browser.run("""(() => { const s = document.createElement('script'); s.textContent = 'window.evil = 1';
        document.body.append(s); const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; })()""")
    assert browser.run("typeof window.evil") == "undefined"
    assert browser.run("fetch('http://127.0.0.1:9/').then(() => 'loaded', () => 'refused')") == "refused"
    assert any("Content Security Policy" in text for text in browser.errors)
