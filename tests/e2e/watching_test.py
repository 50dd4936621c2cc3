"""--metrics_port while a job trains: the metrics, the status page's data, and the alerts and dashboard of deploy/."""
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from harness import ROOT, SYNTHETIC, EndToEndTest
from watch_client import await_status, fetch, free_port

sys.path.insert(0, str(ROOT / "tests" / "testkit"))
import prometheus_text  # pylint: disable=wrong-import-position
import promql  # pylint: disable=wrong-import-position

try:
    import yaml
except ImportError:
    yaml = None


class Monitoring(EndToEndTest):

    def metrics(self, port):
        """Checks the format of /metrics and returns its families."""
        code, headers, text = fetch(port, "/metrics")
        self.assertEqual(code, 200)
        self.assertTrue(headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers)
        promtool = shutil.which("promtool")
        if promtool:
            checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True,
                                     check=False)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""), text)
        return prometheus_text.parse(text)

    def test_metrics_and_status_of_a_job(self):
        port = free_port()
        config = self.write_config(steps=100000, reader=SYNTHETIC.format(n=400, seed=1),
                                   train="save_checkpoints_steps: 20")
        server = self.start_server(config, "run", f"--metrics_port={port}")
        server.wait_for("status page at http://127.0.0.1:")
        families = self.metrics(port)
        self.assertEqual(families["ps_global_step"].value(), 0)
        self.assertNotIn(("", ()), families["ps_loss"].samples, "there is a loss before the first step")
        self.assertEqual(families["ps_num_steps"].value(), 100000)

        worker = self.start_worker("run", 3)
        seen = await_status(port, lambda s: s["step"] > 60 and s["checkpoint"]["durable_step"] >= 20
                            and len(s["history"]["step"]) >= 2)
        self.assertTrue(seen["sync"] and seen["is_coordinator"])
        self.assertEqual([c["worker"] for c in seen["clones"]], [0, 1, 2])
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
        steps = first["ps_global_step"].value()
        self.assertGreater(steps, 60)
        self.assertEqual(first["ps_worker_up"].value(worker="2"), 1)
        self.assertGreater(first["ps_loss"].value(), 0)
        self.assertGreater(first["ps_images_total"].value(), 31 * 60)
        self.assertGreaterEqual(first["ps_push_requests_total"].value(shard="0", code="OK"), 3 * 60)
        rounds = first["ps_round_wait_seconds"].samples["_count", ()]
        self.assertGreater(rounds, 50)
        self.assertLessEqual(rounds, steps)
        pulls = first["ps_pull_duration_seconds"].samples["_count", (("shard", "0"),)]
        self.assertGreater(pulls, 3 * 50)
        self.assertGreater(first["ps_worker_phase_seconds_total"].value(worker="1", phase="compute"), 0)
        contributors = first["ps_step_contributors"].samples
        self.assertEqual(contributors["_sum", ()], 3 * contributors["_count", ()], "a step lacks a contribution")
        resident = first["process_resident_memory_bytes"].value()
        self.assertGreater(resident, 1e6)
        time.sleep(0.3)  # the server renders the page again after 250 ms
        second = self.metrics(port)
        for name, family in first.items():
            if family.type == "counter":
                for key, value in family.samples.items():
                    self.assertGreaterEqual(second[name].samples[key], value, (name, key))

        self.check_http(port)
        self.check_deploy(prometheus_text.sample_names(first))

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
        self.assertIn("ps_global_step", coordinator)
        self.assertNotIn("ps_global_step", other)
        self.assertNotIn("ps_worker_up", other)
        self.assertGreater(other["ps_push_received_bytes_total"].value(shard="1"), 1000)
        self.assertGreater(other["ps_requests_total"].value(shard="1", method="Apply", code="OK"), 5)
        self.assertEqual(other["ps_tasks"].value(), 2)
        for process in (worker, *servers):
            process.kill(signal.SIGTERM)

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


class Parser(unittest.TestCase):
    """Tests of the strict readers of metrics and PromQL."""

    GOOD = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\\\\\\\"\\n\"} 1\n"
    HISTOGRAM = ("# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\n"
                 "h_sum 3\nh_count 2\n")

    def test_good(self):
        families = prometheus_text.parse(self.GOOD + self.HISTOGRAM)
        self.assertEqual(families["a_total"].value(x="1\\\"\n"), 1)
        self.assertEqual(families["h"].samples["_sum", ()], 3)
        self.assertEqual(prometheus_text.sample_names(families), {"a_total", "h_bucket", "h_sum", "h_count"})

    def test_bad(self):
        gauge = "# HELP g G.\n# TYPE g gauge\n"
        for why, text in {
                "no end of line": gauge + "g 1",
                "no header": "g 1\n",
                "no type": "# HELP g G.\ng 1\n",
                "type first": "# TYPE g gauge\n# HELP g G.\ng 1\n",
                "header twice": gauge + "g 1\n" + gauge,
                "not grouped": gauge + self.GOOD + "g 1\n",
                "the same sample twice": gauge + "g{a=\"1\",b=\"2\"} 1\ng{b=\"2\",a=\"1\"} 1\n",
                "a label twice": gauge + "g{a=\"1\",a=\"2\"} 1\n",
                "a trailing comma": gauge + "g{a=\"1\",} 1\n",
                "bad escape": gauge + "g{a=\"\\t\"} 1\n",
                "an unterminated label": gauge + "g{a=\"1} 1\n",
                "no value": gauge + "g \n",
                "two spaces": gauge + "g  1\n",
                "a timestamp": gauge + "g 1 1000\n",
                "inf in lower case": gauge + "g inf\n",
                "a blank line": gauge + "\ng 1\n",
                "a carriage return": gauge + "g 1\r\n",
                "a counter without _total": "# HELP c C.\n# TYPE c counter\nc 1\n",
                "a gauge with _total": "# HELP g_total G.\n# TYPE g_total gauge\ng_total 1\n",
                "a negative counter": self.GOOD.replace("} 1\n", "} -1\n"),
                "decreasing counts": self.HISTOGRAM.replace("\"} 1\n", "\"} 3\n"),
                "no +Inf": self.HISTOGRAM.replace("h_bucket{le=\"+Inf\"} 2\n", ""),
                "a wrong count": self.HISTOGRAM.replace("h_count 2", "h_count 3"),
                "no sum": self.HISTOGRAM.replace("h_sum 3\n", ""),
                "an unknown type": gauge.replace("gauge", "meter") + "g 1\n"}.items():
            with self.subTest(why), self.assertRaises(prometheus_text.FormatError):
                prometheus_text.parse(text)

    def test_expressions(self):
        self.assertEqual(promql.metrics_of("sum by (a) (rate(x_total{b=~\"c|d\"}[5m])) / on (a) group_left () y > 0.5 and z"),
                         {"x_total", "y", "z"})
        for bad in ("rate(a)", "a[5m]", "sum by (x (a)", "a and", "foo(b)", "a{b=\"c\"", "a > ", "a[5x] > 0",
                    "rate(a[5m] > 0", "1 and a", "a b", "a{b>\"c\"}", "abs(a[5m])"):
            with self.subTest(bad), self.assertRaises(promql.QueryError):
                promql.metrics_of(bad)


if __name__ == "__main__":
    unittest.main()
