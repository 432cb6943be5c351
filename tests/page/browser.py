"""A headless Chromium, driven over its DevTools protocol through a pipe. The standard library is enough.

    with Browser() as browser:
        browser.open("map.html")
        browser.evaluate("document.title")
        browser.move(300, 200)
        browser.press("ArrowDown")
        browser.screenshot("map.png")
"""

import base64
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe"
]
TIMEOUT_SECONDS = 60

# What the protocol wants to know of a key besides its name.
KEY_CODES = {"Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Tab": 9}


def find_chromium():
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class BrowserError(Exception):
    pass


class Browser:

    def __init__(self, width=1280, height=800):
        self.profile = tempfile.mkdtemp(prefix="regard-page-")
        # Chromium reads commands from its descriptor 3 and writes answers to 4.
        read_command, self.command = os.pipe()
        self.answer, write_answer = os.pipe()

        def place_pipes():
            # Out of the way first: either may be 3 or 4 already.
            reading, writing = os.dup(read_command), os.dup(write_answer)
            os.dup2(reading, 3)
            os.dup2(writing, 4)

        self.process = subprocess.Popen([find_chromium(), *FLAGS, f"--user-data-dir={self.profile}", f"--window-size={width},{height}", "about:blank"],
                                        preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_command)
        os.close(write_answer)
        self.buffer = b""
        self.count = 0
        self.session = None
        self.events = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.command)
        os.close(self.answer)
        shutil.rmtree(self.profile, ignore_errors=True)

    # ---- protocol

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.command, data):]
        while True:
            answer = self.receive(TIMEOUT_SECONDS)
            if answer is None:
                raise BrowserError(f"{method}: no answer within {TIMEOUT_SECONDS} s")
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.events.append(answer)

    def receive(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            if not select.select([self.answer], [], [], max(0, end - time.monotonic()))[0]:
                return None
            data = os.read(self.answer, 1 << 20)
            if not data:
                raise BrowserError("the browser has gone")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def wait_event(self, method):
        end = time.monotonic() + TIMEOUT_SECONDS
        while not any(event.get("method") == method for event in self.events):
            event = self.receive(end - time.monotonic())
            if event is None:
                raise BrowserError(f"{method}: did not happen within {TIMEOUT_SECONDS} s")
            self.events.append(event)

    # ---- a person's actions

    def open(self, path):
        """Opens a file; returns the seconds until it was drawn."""
        self.events.clear()
        begin = time.monotonic()
        self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        self.wait_event("Page.loadEventFired")
        self.frame()
        return time.monotonic() - begin

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme):
        """dark or light."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise BrowserError(f"{expression}: {result['exceptionDetails'].get('exception', {}).get('description', 'failed')}")
        return result["result"].get("value")

    def frame(self):
        """Waits until what was asked for is drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done())))")

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def move(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.frame()

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.frame()

    def drag(self, x, y, dx, dy):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", buttons=1, clickCount=1)
        for step in range(1, 6):
            self.mouse("mouseMoved", x + dx * step / 5, y + dy * step / 5, button="left", buttons=1)
        self.mouse("mouseReleased", x + dx, y + dy, button="left", clickCount=1)
        self.frame()

    def wheel(self, x, y, delta):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta)
        self.frame()

    def press(self, key, shift=False):
        params = {"key": key, "modifiers": 8 if shift else 0, "windowsVirtualKeyCode": KEY_CODES.get(key, ord(key[0]) if len(key) == 1 else 0)}
        if len(key) == 1 or key == "Enter":
            params["text"] = "\r" if key == "Enter" else key
        self.call("Input.dispatchKeyEvent", type="keyDown", **params)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.frame()

    def screenshot(self, path, full=False):
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        pathlib.Path(path).write_bytes(base64.b64decode(image["data"]))

    # ---- what went wrong

    def faults(self):
        """Exceptions, errors in the console, and every request for something else than the page's own file."""
        faults = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                faults.append(details.get("exception", {}).get("description", details["text"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
                faults.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                faults.append(str(params["args"]))
            elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:")):
                faults.append("request for " + params["request"]["url"])
        return faults
