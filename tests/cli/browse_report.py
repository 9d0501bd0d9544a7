#!/usr/bin/env python3
"""Opens a page of attune report in a headless Chromium and prints what it saw as JSON: browse_report.py CHROMIUM FILE.

The browser is driven by the DevTools protocol over a pipe; nothing but Python's own library is needed.
"""
import base64
import fcntl
import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

DEADLINE_S = 60
PHONE_WIDTH = 360


class Browser:
    """A Chromium that takes JSON messages, each ended by a zero byte, on its descriptor 3 and answers on 4."""

    def __init__(self, executable, profile):
        # Above the numbers that the child gets them under.
        to_child, self.commands = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in os.pipe())
        self.answers, from_child = (fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in os.pipe())
        self.deadline = time.monotonic() + DEADLINE_S
        self.buffer = b""
        self.num_calls = 0
        self.events = []

        def connect():
            os.dup2(to_child, 3)
            os.dup2(from_child, 4)

        # No sandbox: root has none, and the page is ours.
        self.process = subprocess.Popen(
            [executable, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(3, 4), preexec_fn=connect, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)

    def receive(self):
        while b"\0" not in self.buffer:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                raise TimeoutError(f"no answer of the browser within {DEADLINE_S} s")
            chunk = os.read(self.answers, 1 << 16)
            if not chunk:
                raise ConnectionError("the browser has ended")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.num_calls += 1
        message = {"id": self.num_calls, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.num_calls:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, name):
        while not any(event["method"] == name for event in self.events):
            self.events.append(self.receive())

    def close(self):
        self.call("Browser.close")
        self.process.wait(timeout=10)


class Page:
    def __init__(self, browser, url):
        self.browser = browser
        self.url = url
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def open(self, scripts):
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.browser.events.clear()
        self.call("Page.navigate", url=self.url)
        self.browser.wait_for("Page.loadEventFired")

    def evaluate(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def count(self, selector):
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        return len(self.call("DOM.querySelectorAll", nodeId=root, selector=selector)["nodeIds"])

    def click(self, element):
        box = self.evaluate(f"(() => {{ const e = {element}; e.scrollIntoView({{block: 'center', inline: 'center'}});"
                            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def complaints(self):
        """What the console got, the exceptions, and every request but for the page itself."""
        found = {"console": [], "requests": []}
        for event in self.browser.events:
            if event["method"] in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
                found["console"].append(event["params"])
            if event["method"] == "Network.requestWillBeSent" and event["params"]["request"]["url"] != self.url:
                found["requests"].append(event["params"]["request"]["url"])
        return found


# Of the GPU with the most winners.
TABLE = "Array.from(document.querySelectorAll('table.filterable')).sort((a, b) => b.rows.length - a.rows.length)[0]"


def sort_by(page, header):
    """The keys of the column, from top to bottom, after a click on its header."""
    cell = f"Array.from({TABLE}.tHead.rows[0].cells).find((c) => c.textContent === {json.dumps(header)})"
    page.click(f"{cell}.querySelector('button')")
    return {
        "direction": page.evaluate(f"{cell}.getAttribute('aria-sort')"),
        "keys": page.evaluate(f"Array.from({TABLE}.tBodies[0].rows,"
                              f" (row) => row.cells[{cell}.cellIndex].dataset.sort"
                              f" ?? row.cells[{cell}.cellIndex].textContent)"),
    }


def filter_by(page, words):
    """The problems that are left of the table."""
    page.evaluate(f"(() => {{ const input = {TABLE}.parentElement.previousElementSibling.querySelector('input');"
                  f" input.value = {json.dumps(words)}; input.dispatchEvent(new Event('input')); }})()")
    return page.evaluate(f"Array.from({TABLE}.tBodies[0].rows).filter((row) => row.offsetHeight > 0)"
                         ".map((row) => row.cells[0].textContent)")


def look_at(page):
    seen = {}
    page.open(scripts=False)
    seen["rows_without_scripts"] = page.count("tbody tr")
    seen["buttons_without_scripts"] = page.count("button, input")
    page.open(scripts=True)
    seen["rows"] = page.count("tbody tr")
    seen["plots"] = page.count("svg[role=img] .mark")
    seen["up"] = sort_by(page, "time, µs")
    seen["down"] = sort_by(page, "time, µs")
    seen["by_text"] = sort_by(page, "problem")
    seen["filtered"] = filter_by(page, "VERIFY provisional")
    filter_by(page, "")
    seen["injected"] = page.evaluate("String(window.injected)")
    seen["text"] = page.evaluate("document.body.textContent")
    page.call("Emulation.setDeviceMetricsOverride", width=PHONE_WIDTH, height=800, deviceScaleFactor=2, mobile=True)
    # What hangs over is as bad inside of a closed part.
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })")
    seen["phone_width"] = page.evaluate("document.documentElement.scrollWidth")
    page.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = false; })")
    page.call("Emulation.clearDeviceMetricsOverride")
    page.call("Emulation.setEmulatedMedia", media="print")
    seen["print"] = page.evaluate("Array.from(document.querySelectorAll('details'), (details) =>"
                                  " ({bulk: details.className === 'bulk',"
                                  " shown: details.lastElementChild.checkVisibility()}))")
    page.call("Emulation.setEmulatedMedia", media="")
    pdf = base64.b64decode(page.call("Page.printToPDF")["data"])
    seen["pdf"] = pdf[:5].decode("latin-1")
    seen["open_after_print"] = page.count("details[open]")
    return {**seen, **page.complaints()}


def main(executable, file):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(executable, profile)
        try:
            print(json.dumps(look_at(Page(browser, pathlib.Path(file).resolve().as_uri()))))
            browser.close()
        finally:
            browser.process.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
