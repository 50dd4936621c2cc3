"""--trace of worker and ps_server: the contents of the files, their common clock, and the files of killed processes."""
import collections
import json
import os
import re
import signal
import subprocess
import sys
import time
import unittest

from harness import PATIENCE_S, ROOT, EndToEndTest, main

sys.path.insert(0, str(ROOT / "scripts"))
import merge_traces  # pylint: disable=wrong-import-position

STEPS = 20
FIRST_CLONE = 1_000_000
TOLERANCE_US = 5000.0  # largest difference between the clocks of two traces on one host


def end(span):
    return span["ts"] + span["dur"]


def overlap(one, other):
    return (one["ts"] <= end(other) + TOLERANCE_US and other["ts"] <= end(one) + TOLERANCE_US)


class Trace:
    """The spans of a trace, and the names of its processes and rows."""

    def __init__(self, events):
        self.spans = [event for event in events if event["ph"] == "X"]
        self.processes = {event["pid"]: event["args"]["name"] for event in events
                          if event["name"] == "process_name"}
        self.rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
                     if event["name"] == "thread_name"}

    def called(self, name, **arguments):
        """Returns the spans with this name and these arguments."""
        return [span for span in self.spans if span["name"] == name and
                all(span["args"].get(key) == value for key, value in arguments.items())]


class Traces(EndToEndTest):

    def start_both(self, config, clones=2, server_flags=()):
        server = self.start_server(config, "run", f"--trace={self.folder / 'server.json'}", *server_flags)
        worker = self.start_worker("run", clones, f"--trace={self.folder / 'worker.json'}")
        return server, worker

    def await_parts(self, pattern, count, words):
        """Waits until at least `count` files match the pattern and all of them contain `words`. Returns the files."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            parts = sorted(self.folder.glob(pattern))
            if len(parts) >= count and all(words in part.read_text() for part in parts):
                return parts
            time.sleep(0.05)
        raise AssertionError(f"not {count} files {pattern} with {words!r} in {PATIENCE_S} s")

    def load(self, name):
        """Returns the events of a finished trace, which is plain JSON."""
        return json.loads((self.folder / name).read_text())

    def expect_rows_without_overlap(self, trace):
        rows = collections.defaultdict(list)
        for span in trace.spans:
            rows[span["pid"], span["tid"]].append(span)
        for spans in rows.values():
            spans.sort(key=lambda span: (span["ts"], end(span)))
            for before, after in zip(spans, spans[1:]):
                self.assertLessEqual(end(before), after["ts"] + 0.002, (before, after))

    @unittest.skipUnless(os.environ.get("PUSHPULL_TEST_FULL") == "1",
                         "PUSHPULL_TEST_FULL=1: compares clocks to milliseconds, which needs an idle machine")
    def test_spans_of_a_step_fit_together_across_processes(self):
        config = self.write_config(steps=STEPS, train="save_checkpoints_steps: 10")
        server, worker = self.start_both(config, server_flags=["--tasks=2"])
        self.assertEqual(worker.wait(), 0, worker.text() + server.text())
        self.assertEqual(server.wait(), 0, server.text())
        self.assertEqual([path.name for path in self.folder.glob("worker.json*")], ["worker.json"])

        of_server = Trace(self.load("server.json"))
        of_worker = Trace(self.load("worker.json"))
        self.assertEqual(of_server.processes, {1: "ps task 0", 2: "ps task 1"})
        self.assertEqual(set(of_worker.processes), {FIRST_CLONE, FIRST_CLONE + 1})
        for clone in (0, 1):
            self.assertIn(f"clone {clone}", of_worker.processes[FIRST_CLONE + clone])
            self.assertEqual(of_worker.rows[FIRST_CLONE + clone, 1], "training")
        for trace in (of_server, of_worker):
            self.expect_rows_without_overlap(trace)

        for step in range(1, STEPS + 1):
            for replica in (0, 1):
                about = {"step": step, "replica": replica}
                phases = [of_worker.called(name, **about) for name in ("input", "compute", "push")]
                self.assertEqual([len(spans) for spans in phases], [1, 1, 1], (step, replica))
                (push,) = phases[2]
                stages = of_server.called("stage", **about)
                self.assertEqual({stage["args"]["shard"] for stage in stages}, {0, 1}, (step, replica))
                (send,) = of_worker.called("send", **about)
                for stage in stages:
                    self.assertTrue(overlap(send, stage), (send, stage))
                    # Much of the gradient is sent during the backward pass; the push phase lasts until the commit.
                    self.assertLessEqual(end(stage), end(push) + TOLERANCE_US, (push, stage))
                self.assertTrue(overlap(send, push), (send, push))
            applies = of_server.called("apply", step=step)
            self.assertEqual({span["pid"] for span in applies}, {1, 2}, step)
            pulls = of_worker.called("pull", version=step)
            if step < STEPS:
                self.assertEqual(len(pulls), 2, step)
            for pull in pulls:
                for apply in applies:
                    self.assertLessEqual(end(apply), end(pull) + TOLERANCE_US, (apply, pull))
            (wait,) = of_server.called("wait", step=step)
            self.assertIn(wait["args"]["for"], ("clone 0", "clone 1"))
            self.assertLessEqual(end(wait), min(apply["ts"] for apply in applies) + 0.002)
        self.assertEqual([span["args"]["step"] for span in of_server.called("checkpoint")], [10, 20])

        # All processes of a host have the same clock, so each offset that a clone measured is its error.
        offsets = re.findall(r"clone \d: the clock of ps task 0 is ahead by (-?[\d.]+) us, known to within ([\d.]+)",
                             worker.text())
        self.assertEqual(len(offsets), 2, worker.text())
        for offset, bound in offsets:
            self.assertLessEqual(abs(float(offset)), float(bound))

        merged = self.folder / "all.json"
        subprocess.run([sys.executable, ROOT / "scripts" / "merge_traces.py", self.folder / "server.json",
                        self.folder / "worker.json", f"--output={merged}"], check=True, stdout=subprocess.DEVNULL)
        self.assertEqual(self.load("all.json"), self.load("server.json") + self.load("worker.json"))

    def test_traces_of_a_killed_clone_and_server_can_be_read(self):
        config = self.write_config(steps=1_000_000)
        server, worker = self.start_both(config)
        (part,) = self.await_parts("worker.json.clone1.*", 1, '"compute"')
        pid = int(part.name.rsplit(".", 1)[1])
        subprocess.run(["kill", "-KILL", str(pid)], check=True)
        worker.wait_for("killed by signal 9")
        killed = Trace(merge_traces.read_events(part))
        self.assertTrue(killed.called("compute"))
        text = part.read_text()
        self.assertFalse(text.endswith("]\n"))
        events = json.loads(text + "]")  # as the trace viewers do
        self.assertEqual(len(Trace(events).spans), len(killed.spans))

        # The restarted clone writes a new part, and the merged trace contains both parts.
        self.await_parts("worker.json.clone1.*", 2, '"compute"')
        server.kill(signal.SIGKILL)
        server.wait()
        events = json.loads((self.folder / "server.json").read_text() + "]")
        self.assertTrue(Trace(events).called("apply"))
        worker.kill(signal.SIGTERM)
        self.assertEqual(worker.wait(), 143, worker.text())
        merged = Trace(self.load("worker.json"))
        self.assertEqual(len({json.dumps(span) for span in merged.spans} &
                             {json.dumps(span) for span in killed.spans}),
                         len({json.dumps(span) for span in killed.spans}))
        self.expect_rows_without_overlap(merged)

    def test_clones_end_in_order_after_a_signal_to_the_whole_group(self):
        _, worker = self.start_both(self.write_config(steps=1_000_000))
        self.await_parts("worker.json.clone?.*", 2, '"compute"')
        os.killpg(worker.popen.pid, signal.SIGTERM)  # as Ctrl-C in a terminal; systemd and Slurm reach all processes, too
        self.assertEqual(worker.wait(), 143, worker.text())
        for clone in (0, 1):
            self.assertIn(f"clone {clone}: the clock of ps task 0 is", worker.text(), "what a clone says at its end")
        self.assertTrue(Trace(self.load("worker.json")).called("compute"))

    def test_second_ps_process_follows_the_clock_of_task_0(self):
        config = self.write_config(steps=5)
        addresses = [f"unix:{self.folder}/task{task}.sock" for task in (0, 1)]
        servers = [self.start(f"task{task}.log", "ps_server", f"--pipeline_config_path={config}", "--tasks=2",
                              f"--task_index={task}", f"--cluster={','.join(addresses)}",
                              f"--listen={addresses[task]}", f"--train_dir={self.folder / 'run'}", "--state_dir=",
                              f"--trace={self.folder / f'task{task}.json'}") for task in (0, 1)]
        worker = self.start("worker.log", "worker", f"--ps={addresses[0]}", "--num_clones=1")
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(servers[0].wait(), 0, servers[0].text())
        servers[1].kill(signal.SIGTERM)
        servers[1].wait()
        offset, bound = re.search(r"the clock of ps task 0 is ahead by (-?[\d.]+) us, known to within ([\d.]+)",
                                  servers[1].text()).groups()
        self.assertLessEqual(abs(float(offset)), float(bound))
        of_tasks = [Trace(self.load(f"task{task}.json")) for task in (0, 1)]
        for step in range(1, 6):
            (wait,) = of_tasks[0].called("wait", step=step)
            for trace in of_tasks:
                (apply,) = trace.called("apply", step=step)
                self.assertLessEqual(end(wait), apply["ts"] + TOLERANCE_US + float(bound))

    def test_trace_path_that_cannot_be_written_is_refused(self):
        config = self.write_config()
        server = self.start_server(config, "run", f"--trace={self.folder / 'missing' / 'server.json'}")
        self.assertEqual(server.wait(), 66, server.text())
        self.assertIn("missing/server.json", server.text())

    def test_merging_refuses_files_that_are_not_traces(self):
        other = self.folder / "other.json"
        out = self.folder / "out"
        for text in ('{"a": 1}\n', '[\n{"broken\n{}\n]\n'):
            other.write_text(text)
            self.check_that_merging_fails(other, out, code=65, name="other.json")
            self.assertFalse(out.exists())
        self.check_that_merging_fails(self.folder / "missing.json", out, code=66, name="missing.json")
        other.write_text("[\n]\n")
        self.check_that_merging_fails(other, self.folder / "no_folder" / "out", code=66, name="no_folder")

    def check_that_merging_fails(self, trace, output, code, name):
        """Checks the exit code of merge_traces.py, and that its message is one line that contains a name."""
        run = subprocess.run([sys.executable, ROOT / "scripts" / "merge_traces.py", trace, f"--output={output}"],
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, code)
        self.assertRegex(run.stderr, rf"^merge_traces: .*{name}.*\n$")


if __name__ == "__main__":
    main()
