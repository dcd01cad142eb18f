"""The status page in a real browser: Debian's Chromium, without a window."""

import os
import pathlib
import subprocess
import unittest
import urllib.parse

from harness import BINARIES, DEMO, PATIENCE, ROOT, Estate, Gateway, free_port, until
from webdriver import Browser

AXE = ROOT / "interop" / "browser" / "node_modules" / "axe-core" / "axe.min.js"
SCENARIO = ROOT / "fixtures" / "scenarios" / "abort.toml"
CARD = 'article[id="rollout:data-flow/bridge-canary"]'
TOKEN = "0123456789abcdef01234567"


class Page(unittest.TestCase):
    def setUp(self):
        self.estate = Estate()
        self.addCleanup(self.estate.close)

    def browser(self):
        browser = Browser()
        self.addCleanup(browser.close)
        return browser

    def gateway(self, **how):
        gateway = Gateway(self.estate, **how)
        self.addCleanup(self.end, gateway)
        return gateway

    def end(self, gateway):
        if gateway.process.poll() is None:
            gateway.close()
        elif not gateway.process.stdout.closed:
            gateway.process.stdout.close()

    def rehearse(self):
        """A gateway under the rehearsal of a failing candidate whose abort nobody merges."""
        kept = self.estate.dir / "kept"
        text = SCENARIO.read_text()
        self.assertIn('path = "../estates/demo"', text)
        text = text.replace('path = "../estates/demo"', f'path = "{DEMO}"')
        last = 'do = { merge = { branch = "abort-1" } }'
        self.assertIn(last, text)
        text = text.replace(last, f'wait = "100s"\n{last}')
        scenario = self.estate.dir / "scenario.toml"
        scenario.write_text(text)
        listen, admin = (f"127.0.0.1:{free_port()}" for _ in range(2))
        rehearsal = subprocess.Popen(
            [
                BINARIES / "loadgen", "rehearse", "--scenario", scenario, "--keep", kept,
                "--admin-url", f"http://{admin}", "--endpoint", f"ws://{listen}/v1/opamp",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.addCleanup(rehearsal.wait)
        self.addCleanup(rehearsal.kill)
        until((kept / "estate.git" / "refs" / "heads" / "main").exists, "the rehearsal's repository")
        return self.gateway(
            source=["--repo", f"file://{kept / 'estate.git'}"], listen=listen, admin=admin,
            flags=[
                "--store", kept / "store", "--expect-replicas", "1", "--evidence-grace", "1s", "--propose", "--catalogue", "catalogues/catalogue-v0.158.0.json",
                "--propose-as", "Proposer <proposer@estate.example>",
            ],
        )

    def open(self, browser, gateway, path="/"):
        browser.open(f"http://{gateway.admin}{path}")

    def text(self, browser, css):
        """What is in the first such element, seen or not; empty where there is none."""
        return browser.run("const found = document.querySelector(arguments[0]); return found ? found.textContent : ''", css)

    def until_text(self, browser, css, text):
        until(lambda: text in self.text(browser, css), lambda: f"{text!r} in {css}, which is {self.text(browser, css)!r},")

    def verdict(self, browser):
        return browser.run("const card = document.querySelector(arguments[0]); return card && card.dataset.verdict", CARD)

    def refreshed(self, browser):
        """Waits until the page was made anew twice."""
        for _ in range(2):
            before = self.text(browser, "#asof")
            until(lambda: self.text(browser, "#asof") != before, "a newer page")

    def assert_clean(self, browser, gateway):
        """Nothing complained, and nobody but the gateway was asked."""
        self.assertEqual([entry["message"] for entry in browser.log("browser")], [])
        asked = [urllib.parse.urlsplit(url) for url in browser.requests()]
        asked = [url for url in asked if url.scheme not in ("data", "chrome", "about")]
        self.assertTrue(asked)
        self.assertEqual({url.netloc for url in asked}, {gateway.admin})

    def assert_accessible(self, browser):
        browser.run(AXE.read_text() + "; window.axe = axe")
        found = browser.run_async(
            "const done = arguments[0]; axe.run(document).then(({violations, passes}) => done({violations, passes: passes.length}))"
        )
        self.assertGreater(found["passes"], 20)
        told = [(one["id"], [node["html"][:200] for node in one["nodes"]]) for one in found["violations"]]
        self.assertEqual(told, [])

    def assert_fits(self, browser, width, height=900):
        browser.size(width, height)
        self.assertLessEqual(browser.run("return document.documentElement.scrollWidth"), width)

    def keep(self, browser, name):
        """A picture; kept where TIDEGATE_SCREENSHOTS says, for the docs."""
        shot = browser.screenshot()
        self.assertTrue(shot.startswith(b"\x89PNG"))
        if folder := os.environ.get("TIDEGATE_SCREENSHOTS"):
            (pathlib.Path(folder) / f"{name}.png").write_bytes(shot)
        return shot

    def focus_after(self, browser, key):
        browser.press(key)
        return browser.run("return document.activeElement.textContent")

    def test_a_failing_candidate_is_seen_as_it_fails(self):
        browser = self.browser()
        gateway = self.rehearse()
        self.open(browser, gateway)
        browser.run("window.sameDocument = true")
        self.assertNotEqual(self.verdict(browser), "abort", "it is seen to come")
        until(lambda: self.verdict(browser) == "abort", lambda: f"abort, instead of {self.verdict(browser)},", 60)
        self.until_text(browser, "h1", "1 Rollout calls for an abort")
        self.until_text(browser, "#said", "data-flow/bridge-canary: abort.")
        self.until_text(browser, f"{CARD} .brake", "nobody new is offered the candidate")
        self.until_text(browser, f"{CARD} .proposal", "Proposal to abort: pushed")
        self.until_text(browser, f"{CARD} .halted summary", "Halted members: 2, of 1 kind")
        self.until_text(browser, f"{CARD} .said", "cannot start the sampler")
        self.until_text(browser, f"{CARD} .arms .sum", "20 seen")
        self.assertTrue(browser.run("return document.title").startswith("✖ 1 Rollout calls for an abort"))
        self.assertTrue(browser.run("return document.getElementById('icon').href").endswith("/critical.svg"))

        # By keyboard alone: past the skip link, to a folded list, and into it.
        self.assertEqual(self.focus_after(browser, "tab"), "Skip to the Rollouts")
        self.assertEqual(self.focus_after(browser, "tab"), "✖abort1")
        self.assertTrue(self.focus_after(browser, "tab").startswith("Halted members"))
        self.assertEqual(self.focus_after(browser, "tab"), "Members by stage")
        opened = "const list = document.activeElement.parentElement; return list.nodeName + list.open"
        self.assertEqual(browser.run(opened), "DETAILSfalse")
        browser.press("enter")
        self.assertEqual(browser.run(opened), "DETAILStrue")
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        self.assertEqual(browser.run(outline), "solid")
        browser.run("window.focused = document.activeElement")
        self.refreshed(browser)
        self.assertTrue(browser.run("return window.focused === document.activeElement"))
        self.assertEqual(browser.run(opened), "DETAILStrue", "what was opened stays open")
        self.assertEqual(self.text(browser, f"{CARD} caption")[:3], "On,")

        for scheme in ("light", "dark"):
            browser.prefer(prefers_color_scheme=scheme, prefers_reduced_motion="reduce")
            browser.run("document.activeElement.parentElement.open = true")
            self.assert_accessible(browser)
            browser.run("document.activeElement.parentElement.open = false; scrollTo(0, 0)")
            browser.size(1280, 960)
            self.keep(browser, f"status-page-{scheme}")
        self.assertNotEqual(
            browser.run("return getComputedStyle(document.body.parentElement).backgroundColor"), "rgb(243, 244, 246)"
        )
        for width in (320, 768, 1280, 3840):
            self.assert_fits(browser, width)
        self.assertTrue(browser.run("return window.sameDocument"), "nothing was loaded anew")
        self.assert_clean(browser, gateway)

    def test_populations_grow_on_the_page_and_are_not_read_out(self):
        gateway, browser = self.gateway(), self.browser()
        self.open(browser, gateway)
        until(lambda: self.verdict(browser) == "hold", "the card")
        self.until_text(browser, "main", "No collector is connected here")
        self.assert_accessible(browser)
        collectors = subprocess.Popen(
            [
                BINARIES / "loadgen", "--estate", self.estate.dir, "--collectors", "300", "--duration", "5m",
                "--endpoint", f"ws://{gateway.opamp}/v1/opamp", "--heartbeat", "1s",
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.addCleanup(collectors.wait)
        self.addCleanup(collectors.kill)
        self.until_text(browser, ".tiers h2", "300 collectors here")
        self.assertNotIn("No collector is connected here", self.text(browser, "main"))
        self.assertEqual(self.text(browser, "#said"), "")
        self.assert_clean(browser, gateway)

    def test_a_lost_gateway_is_told_and_its_return(self):
        admin = f"127.0.0.1:{free_port()}"
        gateway, browser = self.gateway(admin=admin), self.browser()
        self.open(browser, gateway)
        until(lambda: self.verdict(browser) == "hold", "the card")
        self.assertEqual(self.text(browser, "#lost"), "")
        gateway.process.kill()
        gateway.process.wait(PATIENCE)
        self.until_text(browser, "#lost", "Not live since")
        self.until_text(browser, "#lost", "The gateway does not answer. What you see is as of")
        self.assertEqual(self.verdict(browser), "hold", "the last picture stays")
        self.keep(browser, "lost")
        self.gateway(admin=admin)
        until(lambda: self.text(browser, "#lost") == "", "the page is live again")
        self.assertFalse(browser.run("return document.title").startswith("(not live)"))
        self.assertTrue(browser.run("return document.getElementById('lost').hidden"))

    def test_without_a_script_the_page_is_whole(self):
        gateway, browser = self.gateway(), self.browser()
        browser.forbid_scripts()
        until(lambda: '"verdict":{' in gateway.get("/api/v1/rollouts"), "a verdict")
        self.open(browser, gateway)
        card = browser.text(CARD)
        for part in ("hold", "Stage 2 of 3", "0 seen", "Control group", "gateway-owners"):
            self.assertIn(part, card)
        self.assertIn("Reload to see what changed.", browser.text(".top"))
        self.assertIn("data-flow/kafka-bridge", browser.text(".tiers table"))
        self.assertNotIn("live", browser.text("#asof"))
        # Lists fold without it, too.
        browser.click(f"{CARD} details summary")
        self.assertIn("All members", browser.text(f"{CARD} table"))
        self.assert_clean(browser, gateway)

    def test_a_browser_signs_in_and_out(self):
        tokens = self.estate.dir / "admin-tokens"
        tokens.write_text(TOKEN + "\n")
        gateway, browser = self.gateway(flags=["--admin-token-file", tokens]), self.browser()
        self.open(browser, gateway)
        self.assertEqual(browser.url(), f"http://{gateway.admin}/login")
        self.assertEqual(browser.run("return document.activeElement.id"), "token")
        self.assert_accessible(browser)
        self.assert_clean(browser, gateway)
        browser.press(*"wrong-wrong-wrong-wrong", "enter")
        self.until_text(browser, "#why", "none of the tokens")
        self.assert_accessible(browser)
        browser.press(*TOKEN, "enter")
        until(lambda: browser.url() == f"http://{gateway.admin}/", "signed in")
        until(lambda: self.verdict(browser) == "hold", "the card")
        browser.log("browser")  # the refusal before
        self.assertEqual(browser.run("return document.cookie"), "", "no script reads the cookie")
        self.refreshed(browser)
        self.assert_clean(browser, gateway)
        # Out in one tab: another one says so.
        browser.run_async("const done = arguments[0]; fetch('/logout', {method: 'POST'}).then(() => done())")
        self.until_text(browser, "#lost", "You are signed out.")
        browser.click("#lost a")
        until(lambda: browser.url() == f"http://{gateway.admin}/login", "the form")


if __name__ == "__main__":
    unittest.main(verbosity=2)
