"""The status page in a real browser: headless Chromium loads it while a job trains, and the tests check its DOM.

Runs with PUSHPULL_TEST_FULL=1 if Chromium is installed (Debian's package `chromium`); otherwise it is skipped.
"""
import http.server
import json
import os
import signal
import sys
import threading
import unittest

from harness import ROOT, EndToEndTest, free_port, main
from monitoring_client import await_status, fetch, status

sys.path.insert(0, str(ROOT / "scripts"))
import headless_chromium  # pylint: disable=wrong-import-position

HOSTILE = "</div></script><img src=x onerror=\"document.title='taken over'\"><b id=step>666</b>"


class Altered:
    """An HTTP server that serves a page, with the headers of the real one, and the figures that a test supplies."""

    def __init__(self, page, headers, figures):
        class Handler(http.server.BaseHTTPRequestHandler):

            def do_GET(self):  # pylint: disable=invalid-name
                is_page = self.path == "/"
                body = (page if is_page else json.dumps(figures())).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8" if is_page else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Content-Security-Policy", headers["Content-Security-Policy"])
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@unittest.skipUnless(os.environ.get("PUSHPULL_TEST_FULL") == "1", "runs with PUSHPULL_TEST_FULL=1")
@unittest.skipIf(headless_chromium.find() is None, "no chromium here (apt-get install chromium)")
class StatusPage(EndToEndTest):

    def start_job(self, clones=3, server_flags=(), **changes):
        port = free_port()
        config = self.write_config(steps=100000, **changes)
        self.server = self.start_server(config, "run", f"--metrics_port={port}", *server_flags)
        self.worker = self.start_worker("run", clones)
        return port

    def load(self, port, **options):
        return headless_chromium.Dom(headless_chromium.dump_dom(f"http://127.0.0.1:{port}/", **options))

    def altered(self, port, change):
        """Returns the DOM of the page after `change` has altered the figures."""
        _, headers, page = fetch(port, "/")
        figures = status(port)
        change(figures)
        server = Altered(page, headers, lambda: figures)
        self.addCleanup(server.close)
        return headless_chromium.Dom(headless_chromium.dump_dom(server.url))

    def test_shows_a_job_that_trains(self):
        port = self.start_job()
        before = await_status(port, lambda s: s["step"] > 30 and len(s["history"]["step"]) > 2)
        dom = self.load(port)
        after = status(port)
        step = int(dom.ids["step"]["text"].replace(",", ""))
        self.assertLess(before["step"], step + 1)
        self.assertLess(step, after["step"] + 1)
        self.assertEqual(dom.ids["num_steps"]["text"], " / 100,000")
        self.assertGreater(float(dom.ids["loss"]["text"]), 0.0)
        self.assertEqual(float(dom.ids["learning_rate"]["text"]), 0.02)
        self.assertEqual(dom.ids["mode"]["text"], "synchronous")
        self.assertEqual(sorted(dom.clones), [0, 1, 2])
        for number, row in dom.clones.items():
            self.assertEqual(row["attributes"]["data-state"], "alive")
            self.assertIn(f"clone {number}", row["text"])
            self.assertIn(before["clones"][number]["peer"], row["text"])
            self.assertRegex(row["text"], r"contributed [1-9]")
        self.assertEqual(dom.ids["clone_count"]["text"], "3 of 3 alive")
        self.assertEqual(dom.ids["link"]["text"], "live")
        self.assertGreater(dom.tags.count("path"), 4, "the page lacks curves")
        self.assertEqual(dom.ids["banners"]["text"], "")

    def test_text_from_peers_is_not_interpreted_as_html(self):
        port = self.start_job(1)
        await_status(port, lambda s: s["step"] > 3)

        def change(figures):
            figures["clones"][0].update(peer=HOSTILE, phase=HOSTILE, late=False)
            figures.update(waiting_for=HOSTILE, waiting_seconds=40, step=7)

        dom = self.altered(port, change)
        self.assertNotIn("img", dom.tags)
        self.assertEqual(dom.ids["step"]["text"], "7")
        self.assertIn(HOSTILE, dom.clones[0]["text"])
        self.assertIn("Waiting for " + HOSTILE, dom.ids["banners"]["text"])

    def test_lost_clone_is_named(self):
        port = self.start_job(1)
        await_status(port, lambda s: s["step"] > 3)
        self.worker.kill(signal.SIGKILL)
        os.killpg(self.worker.popen.pid, signal.SIGKILL)
        await_status(port, lambda s: s["clones"][0]["state"] == "lost")
        dom = self.load(port)
        self.assertEqual(dom.clones[0]["attributes"]["data-state"], "lost")
        self.assertIn("Clone 0 is lost", dom.ids["banners"]["text"])
        self.assertIn("Waiting for clone 0 of 1", dom.ids["banners"]["text"])

    def test_other_states(self):
        port = self.start_job(1)
        await_status(port, lambda s: s["step"] > 3)

        def stop(figures):
            figures.update(stopped="loss is not finite", staleness=None, sync=False)

        dom = self.altered(port, stop)
        self.assertIn("Training was stopped", dom.ids["banners"]["text"])
        self.assertIn("loss is not finite", dom.ids["banners"]["text"])
        self.assertEqual(dom.ids["mode"]["text"], "asynchronous")
        self.assertIn("Staleness", dom.ids["histogram_title"]["text"])

        dom = self.altered(port, lambda figures: figures.update(training_done=True))
        self.assertIn("Training is done", dom.ids["banners"]["text"])

    def test_page_says_when_the_server_is_gone(self):
        port = self.start_job(1)
        await_status(port, lambda s: s["step"] > 3)
        _, headers, page = fetch(port, "/")

        def figures():
            raise BrokenPipeError("the server is gone")

        server = Altered(page, headers, figures)
        server.server.handle_error = lambda *args: None
        self.addCleanup(server.close)
        dom = headless_chromium.Dom(headless_chromium.dump_dom(server.url))
        self.assertEqual(dom.ids["link"]["text"], "no answer")
        self.assertIn("The server does not answer", dom.ids["banners"]["text"])


if __name__ == "__main__":
    main()
