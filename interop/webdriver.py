"""A browser to drive: Debian's Chromium over plain WebDriver (W3C), by the standard library alone, so
that nothing is downloaded."""

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request

from harness import PATIENCE, free_port

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"tab": "\ue004", "enter": "\ue007", "space": "\ue00d", "shift": "\ue008"}


class Browser:
    """Headless Chromium in a session of its own."""

    def __init__(self, width=1280, height=900):
        port = free_port()
        self.driver = subprocess.Popen(
            [shutil.which("chromedriver") or "chromedriver", f"--port={port}", "--silent"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.base = f"http://127.0.0.1:{port}"
        self.session = ""
        try:
            self._wait_for_driver()
            options = {
                "binary": shutil.which("chromium"),
                # No sandbox: the tests run as root.
                "args": [
                    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
                    "--disable-background-networking", "--disable-component-update", "--no-first-run",
                    "--force-device-scale-factor=1", f"--window-size={width},{height}",
                ],
            }
            wanted = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            }
            answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self.session = f"/session/{answer['sessionId']}"
            self.size(width, height)
        except BaseException:
            self.close()
            raise

    def _wait_for_driver(self):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except OSError:
                pass
            assert time.monotonic() < deadline, "chromedriver did not start"
            time.sleep(0.05)

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=4 * PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {json.load(error)['value'].get('message')}") from None

    def ask(self, method, path, **body):
        return self._call(method, self.session + path, body if method == "POST" else None)

    def devtools(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", cmd=command, params=parameters)

    def open(self, url):
        self.ask("POST", "/url", url=url)

    def url(self):
        return self.ask("GET", "/url")

    def run(self, script, *arguments):
        return self.ask("POST", "/execute/sync", script=script, args=list(arguments))

    def run_async(self, script, *arguments):
        """The script's last argument is to be called with the result."""
        return self.ask("POST", "/execute/async", script=script, args=list(arguments))

    def find(self, css):
        return self.ask("POST", "/element", using="css selector", value=css)[ELEMENT]

    def text(self, css):
        return self.ask("GET", f"/element/{self.find(css)}/text")

    def type(self, css, text):
        self.ask("POST", f"/element/{self.find(css)}/value", text=text)

    def click(self, css):
        self.ask("POST", f"/element/{self.find(css)}/click")

    def press(self, *names):
        """Keys, one after the other, to whatever has the focus."""
        strokes = []
        for name in names:
            key = KEYS.get(name, name)
            strokes += [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self.ask("POST", "/actions", actions=[{"type": "key", "id": "keyboard", "actions": strokes}])

    def size(self, width, height):
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, **features):
        """Media features, such as `prefers_color_scheme="dark"`."""
        features = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.devtools("Emulation.setEmulatedMedia", features=features)

    def forbid_scripts(self):
        """Of pages; what `run` runs still runs."""
        self.devtools("Emulation.setScriptExecutionDisabled", value=True)

    def screenshot(self) -> bytes:
        return base64.b64decode(self.ask("GET", "/screenshot"))

    def log(self, kind):
        """Entries of the log `browser` (the console) or `performance` since the last look."""
        return self.ask("POST", "/se/log", type=kind)

    def requests(self):
        """Addresses that were asked for since the last look."""
        found = []
        for entry in self.log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found

    def close(self):
        if self.session:
            try:
                self.ask("DELETE", "")
            except (AssertionError, OSError):
                pass  # it is killed below
        self.driver.terminate()
        self.driver.wait(PATIENCE)
