"""--metrics_port while a job trains: the metrics, the status page's data, and the alerts and dashboard of deploy/."""
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from prometheus_client.parser import text_string_to_metric_families

from harness import PATIENCE_S, ROOT, SYNTHETIC, EndToEndTest, free_port, main
from monitoring_client import await_status, fetch

sys.path.insert(0, str(ROOT / "tests" / "testkit"))
import promql  # pylint: disable=wrong-import-position

try:
    import yaml
except ImportError:
    yaml = None


class Metrics:
    """A page of metrics: its samples, the types of their families, and every name that a query may use."""

    SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}

    def __init__(self, text):
        self.samples = {}  # (name, sorted pairs of labels) -> value
        self.types, self.names = {}, set()
        for family in text_string_to_metric_families(text):
            names = {family.name + suffix for suffix in self.SUFFIXES.get(family.type, ())}
            if not names or names & self.names:
                raise ValueError(f"{family.name} occurs twice or has no type")
            self.names |= names
            for name, labels, value, timestamp, _ in family.samples:
                key = name, tuple(sorted(labels.items()))
                if name not in names or key in self.samples or timestamp is not None:
                    raise ValueError(f"{family.name}: unexpected sample {key}")
                self.samples[key] = value
                self.types[name] = family.type

    def value(self, name, **labels):
        """Returns the value of the sample with exactly these labels."""
        return self.samples[name, tuple(sorted(labels.items()))]


class Monitoring(EndToEndTest):

    def metrics(self, port):
        """Checks the format of /metrics and returns its samples."""
        code, headers, text = fetch(port, "/metrics")
        self.assertEqual(code, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers)
        promtool = shutil.which("promtool")
        if promtool:
            checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True,
                                     check=False)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""), text)
        return Metrics(text)

    def test_metrics_and_status_of_a_job(self):
        port = free_port()
        config = self.write_config(steps=100000, reader=SYNTHETIC.format(n=400, seed=1),
                                   train="save_checkpoints_steps: 20")
        server = self.start_server(config, "run", f"--metrics_port={port}")
        server.wait_for("status page at http://127.0.0.1:")
        families = self.metrics(port)
        self.assertEqual(families.value("ps_global_step"), 0)
        self.assertIn("ps_loss", families.names)
        self.assertNotIn(("ps_loss", ()), families.samples, "there is a loss before the first step")
        self.assertEqual(families.value("ps_num_steps"), 100000)

        worker = self.start_worker("run", 3)
        seen = await_status(port, lambda s: s["step"] > 60 and s["checkpoint"]["durable_step"] >= 20
                            and len(s["history"]["step"]) >= 2)
        self.assertTrue(seen["sync"] and seen["is_coordinator"])
        self.assertEqual([c["clone"] for c in seen["clones"]], [0, 1, 2])
        self.assertTrue(all(c["state"] == "alive" and c["contributions"] > 0 for c in seen["clones"]), seen["clones"])
        for clone in seen["clones"]:
            self.assertEqual(set(clone["phase_seconds"]), {"input", "pull", "compute", "push", "wait"})
            self.assertGreater(clone["phase_seconds"]["compute"], 0.0)
        self.assertGreater(sum(seen["contributors"]["counts"]), 50)
        self.assertEqual(sum(seen["staleness"]["counts"]), 0, "a synchronous job reports staleness")
        self.assertEqual(len(seen["history"]["loss"]), len(seen["history"]["step"]))
        self.assertEqual(seen["history"]["step"], sorted(set(seen["history"]["step"])))
        self.assertTrue(all(0 < loss < 100 for loss in seen["history"]["loss"]), seen["history"])

        first = self.metrics(port)
        steps = first.value("ps_global_step")
        self.assertGreater(steps, 60)
        self.assertEqual(first.value("ps_clone_up", clone="2"), 1)
        self.assertGreater(first.value("ps_loss"), 0)
        self.assertGreater(first.value("ps_images_total"), 31 * 60)
        self.assertGreaterEqual(first.value("ps_push_requests_total", shard="0", code="OK"), 3 * 60)
        steps = first.value("ps_barrier_wait_seconds_count")
        self.assertGreater(steps, 50)
        pulls = first.value("ps_pull_duration_seconds_count", shard="0")
        self.assertGreater(pulls, 3 * 50)
        self.assertGreater(first.value("ps_clone_phase_seconds_total", clone="1", phase="compute"), 0)
        self.assertEqual(first.value("ps_step_contributors_sum"), 3 * first.value("ps_step_contributors_count"),
                         "a step lacks a contribution")
        resident = first.value("process_resident_memory_bytes")
        self.assertGreater(resident, 1e6)
        time.sleep(0.3)  # the server renders the page again after 250 ms
        second = self.metrics(port)
        # The server counts steps while it renders a page, so the first page may count one more than its steps.
        self.assertLessEqual(steps, second.value("ps_global_step"))
        for key, value in first.samples.items():
            if first.types[key[0]] == "counter":
                self.assertGreaterEqual(second.samples[key], value, key)

        self.check_http(port)
        self.check_deploy(first.names)

        # A client that never completes its request does not keep the server from ending.
        with socket.create_connection(("127.0.0.1", port)) as lingering:
            lingering.sendall(b"GET /metrics HT")
            server.kill(signal.SIGTERM)
            self.assertEqual(server.wait(60), 143, server.text())
        worker.kill(signal.SIGTERM)

    def check_http(self, port):
        code, headers, page = fetch(port, "/")
        self.assertEqual(code, 200)
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertIn("<title>Pushpull</title>", page)
        self.assertEqual(fetch(port, "/healthz")[::2], (200, "ok\n"))
        code, headers, body = fetch(port, "/metrics", "HEAD")
        self.assertEqual((code, body), (200, ""))
        self.assertEqual(fetch(port, "/no/such")[0], 404)
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            self.assertEqual(fetch(port, "/metrics", method)[0], 405, method)
        self.assertEqual(fetch(port, "/status.json", headers={"Host": "elsewhere.example"})[0], 421)

    def check_deploy(self, names):
        """Checks that the alerts and the dashboard are well-formed and use only metrics that the server exports."""
        dashboard = json.loads((ROOT / "deploy" / "grafana" / "pushpull.json").read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        self.assertGreater(len(expressions), 20)
        ids = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        rules_path = ROOT / "deploy" / "prometheus" / "alerts.yml"
        if yaml is None:
            print("no PyYAML: the alerts are not checked", file=sys.stderr)
        else:
            rules = [rule for group in yaml.safe_load(rules_path.read_text())["groups"] for rule in group["rules"]]
            self.assertGreater(len(rules), 8)
            for rule in rules:
                self.assertLessEqual(set(rule), {"alert", "expr", "for", "labels", "annotations"}, rule)
                self.assertIn(rule["labels"]["severity"], ("critical", "warning"))
                self.assertIn("summary", rule["annotations"])
            expressions += [rule["expr"] for rule in rules]
        for expression in expressions:
            for name in promql.metrics_of(expression):
                self.assertIn(name, names, expression)
        promtool = shutil.which("promtool")
        if promtool:
            checked = subprocess.run([promtool, "check", "rules", str(rules_path)], capture_output=True, text=True,
                                     check=False)
            self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)

    def test_each_task_exports_the_metrics_of_its_shard(self):
        ports = [free_port(), free_port()]
        cluster = ",".join(self.address(f"task{i}") for i in range(2))
        config = self.write_config(steps=100000)
        servers = [self.start("task%d.log" % i, "ps_server", f"--pipeline_config_path={config}",
                              f"--train_dir={self.folder / 'run'}", f"--listen={self.address(f'task{i}')}",
                              f"--state_dir={self.folder / 'state'}", "--tasks=2", f"--task_index={i}",
                              f"--cluster={cluster}", f"--metrics_port={ports[i]}") for i in range(2)]
        worker = self.start("worker.log", "worker", f"--ps={cluster}", "--num_clones=2", "--peer_deadline=60s")
        await_status(ports[0], lambda s: s["step"] > 5)
        await_status(ports[1], lambda s: s["shards"][0]["pushes"]["ok"] > 5)
        coordinator, other = self.metrics(ports[0]), self.metrics(ports[1])
        self.assertIn("ps_global_step", coordinator.names)
        self.assertNotIn("ps_global_step", other.names)
        self.assertNotIn("ps_clone_up", other.names)
        self.assertGreater(other.value("ps_push_received_bytes_total", shard="1"), 1000)
        self.assertGreater(other.value("ps_requests_total", shard="1", method="Apply", code="OK"), 5)
        self.assertEqual(other.value("ps_tasks"), 2)
        for process in (worker, *servers):
            process.kill(signal.SIGTERM)

    def test_a_server_is_healthy_before_it_knows_its_job(self):
        """Its external model is declared by its clones, of which there is none yet."""
        config = self.folder / "external.config"
        config.write_text("""
            model { external { name: "test" } }
            train_config { batch_size: 8 num_steps: 5
              optimizer { momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.1 } } } } }""")
        port = free_port()
        server = self.start_server(config, "run", f"--metrics_port={port}")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.assertEqual(fetch(port, "/healthz")[::2], (200, "ok\n"))
                break
            except OSError:  # it does not listen yet
                self.assertIsNone(server.popen.poll(), server.text())
                self.assertLess(time.monotonic(), deadline, server.text())
                time.sleep(0.1)
        self.assertEqual(fetch(port, "/metrics")[0], 503)
        self.assertNotIn("status page at", server.text())
        server.kill(signal.SIGTERM)
        self.assertEqual(server.wait(), 143, server.text())

    def test_bad_addresses_are_errors(self):
        config = self.write_config()
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            server = self.start_server(config, "a", f"--metrics_port={taken.getsockname()[1]}")
            self.assertEqual(server.wait(), 65, server.text())
            self.assertIn("another process listens there", server.text())
        server = self.start_server(config, "b", "--metrics_port=70000")
        self.assertEqual(server.wait(), 64)


class Alerts(unittest.TestCase):

    def test_a_server_without_a_step_is_reported_once_it_has_been_scraped_for_as_long_as_changes_looks_back(self):
        text = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
        expression = re.search(r"- alert: PushpullNoStep\n +expr: (.+)\n", text)[1]
        without_step, scraped_before, not_done = expression.split(" and ")
        window = re.fullmatch(r"changes\(ps_global_step\[(\w+)\]\) == 0", without_step)[1]
        self.assertEqual(scraped_before, f"ps_global_step offset {window} >= 0")
        self.assertEqual(not_done, "ps_training_done == 0")

    def test_a_clone_that_was_taken_out_or_has_left_is_not_lost(self):
        text = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
        expression = re.search(r"- alert: PushpullCloneLost\n +expr: >-\n((?: {10}.+\n)+)", text)[1]
        self.assertLessEqual({"ps_clone_up", "ps_clone_evicted", "ps_clone_left", "ps_training_done"},
                             promql.metrics_of(expression))
        self.assertIn("unless ps_clone_left == 1", expression)

    def test_the_dashboard_computes_with_a_last_step_only_if_there_is_one(self):
        """ps_num_steps is 0 for a run without end, whose time left would be negative."""
        dashboard = json.loads((ROOT / "deploy" / "grafana" / "pushpull.json").read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
        uses = [expression for expression in expressions if "ps_num_steps" in expression]
        self.assertGreaterEqual(len(uses), 2)
        for expression in uses:
            self.assertEqual(expression.count("ps_num_steps"),
                             len(re.findall(r"\(ps_num_steps\{[^}]*\} > 0\)", expression)), expression)


class Parser(unittest.TestCase):
    """Tests of the strict reader of PromQL."""

    def test_expressions(self):
        self.assertEqual(promql.metrics_of("sum by (a) (rate(x_total{b=~\"c|d\"}[5m])) / on (a) group_left () y > 0.5 and z"),
                         {"x_total", "y", "z"})
        for bad in ("rate(a)", "a[5m]", "sum by (x (a)", "a and", "foo(b)", "a{b=\"c\"", "a > ", "a[5x] > 0",
                    "rate(a[5m] > 0", "1 and a", "a b", "a{b>\"c\"}", "abs(a[5m])"):
            with self.subTest(bad), self.assertRaises(promql.QueryError):
                promql.metrics_of(bad)


if __name__ == "__main__":
    main()
