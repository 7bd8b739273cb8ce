"""Chromium without a window, driven over the W3C WebDriver protocol."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64decode

import pytest

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_OPTIONS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
]


def needs_browser():
    """Skips where there is no Chromium, saying what is missing."""
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if missing:
        how = "on Debian: apt-get install chromium chromium-driver"
        pytest.skip(f"{' and '.join(missing)} not found; {how}")


@contextlib.contextmanager
def browser(profile):
    """A `Browser` with a new profile in that folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        [shutil.which("chromedriver"), f"--port={port}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        found = Browser(f"http://127.0.0.1:{port}", profile)
        try:
            yield found
        finally:
            found.send("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(timeout=600)


class Browser:
    """One window. Elements are named by CSS selectors."""

    def __init__(self, address, profile):
        self.address = address
        self._wait_for_driver()
        options = {
            "binary": shutil.which("chromium"),
            "args": [*_OPTIONS, f"--user-data-dir={profile}"],
        }
        wanted = {"browserName": "chrome", "goog:chromeOptions": options}
        wanted["goog:loggingPrefs"] = {"browser": "ALL"}
        answer = self._request(
            "POST", "/session", {"capabilities": {"alwaysMatch": wanted}}, timeout=600
        )
        self.address += f"/session/{answer['sessionId']}"

    def _wait_for_driver(self):
        for _ in range(150):
            with contextlib.suppress(OSError):
                if self._request("GET", "/status")["ready"]:
                    return
            time.sleep(0.2)
        raise RuntimeError("chromedriver does not answer")

    def _request(self, method, path, body=None, timeout=600):
        data = None if method != "POST" else json.dumps(body or {}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(self.address + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def send(self, method, path, **body):
        """A command of the protocol."""
        return self._request(method, path, body)

    def open(self, url):
        self.send("POST", "/url", url=url)

    def run(self, script, *args):
        """What a function's body in JavaScript returns."""
        return self.send("POST", "/execute/sync", script=script, args=list(args))

    def _element(self, selector):
        found = self.send("POST", "/element", using="css selector", value=selector)
        return f"/element/{found[_ELEMENT]}"

    def type(self, selector, text):
        self.send("POST", f"{self._element(selector)}/value", text=text)

    def click(self, selector):
        self.send("POST", f"{self._element(selector)}/click")

    def choose(self, selector, value):
        """An entry of a list, as somebody would with the keyboard."""
        self.click(f'{selector} option[value="{value}"]')

    def text(self, selector):
        return self.send("GET", f"{self._element(selector)}/text")

    def texts(self, selector):
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
        )

    def wait(self, script, seconds=600):
        """Until an expression in JavaScript is true."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({script})"):
            if time.monotonic() > end:
                raise AssertionError(f"never came true: {script}; {self.text('#status')!r}")
            time.sleep(0.1)

    def size(self, width, height):
        """Of the page as a telephone or a screen of that width shows it."""
        self.send(
            "POST",
            "/goog/cdp/execute",
            cmd="Emulation.setDeviceMetricsOverride",
            params={"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )

    def dark(self, yes):
        features = [{"name": "prefers-color-scheme", "value": "dark" if yes else "light"}]
        self.send(
            "POST",
            "/goog/cdp/execute",
            cmd="Emulation.setEmulatedMedia",
            params={"features": features},
        )

    def screenshot(self, path):
        path.write_bytes(b64decode(self.send("GET", "/screenshot")))

    def console(self):
        """What the page wrote to the console since the last call."""
        return [entry["message"] for entry in self.send("POST", "/se/log", type="browser")]
