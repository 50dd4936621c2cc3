"""Training over TLS: refusals at the start, replacing certificates during training, and no secrets in the logs."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from harness import ROOT, EndToEndTest, free_port, main
from processes import children

FULL = os.environ.get("PUSHPULL_TEST_FULL") == "1"


class TlsTest(EndToEndTest):

    def make_certs(self, *flags, folder="certs"):
        """Runs make_certs.sh and returns the folder."""
        done = subprocess.run([ROOT / "scripts" / "make_certs.sh", f"--out={self.folder / folder}", "--job=e2e",
                               *flags], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return self.folder / folder

    def tls(self, name, folder="certs"):
        """Returns the flags for the certificate `name`."""
        certs = self.folder / folder
        return [f"--tls_ca={certs}/ca.pem", f"--tls_cert={certs}/{name}.pem", f"--tls_key={certs}/{name}.key"]


class Refusals(TlsTest):

    def refused(self, code, words, name, *flags):
        """Starts a program and expects that it ends with the code and the words."""
        process = self.start(f"refused{len(self.processes)}.log", name, *flags)
        self.assertEqual(process.wait(), code, process.text())
        for word in words:
            self.assertIn(word, process.text())

    def test_flags_and_files(self):
        certs = self.make_certs("--ps=127.0.0.1", "--workers=1", "--clones=2", "--admin")
        job = [f"--pipeline_config_path={self.write_config()}", f"--train_dir={self.folder / 'run'}",
               "--state_dir="]
        port = free_port()
        beyond = f"--listen=0.0.0.0:{port}"
        # Plaintext is refused beyond this machine, unless --insecure is given.
        self.refused(64, ["0.0.0.0", "--tls_ca", "--insecure"], "ps_server", *job, beyond)
        self.refused(64, ["192.0.2.1:2222", "--insecure"], "worker", "--ps=192.0.2.1:2222")
        server = self.start("insecure.log", "ps_server", *job, beyond, "--insecure")
        server.wait_for("listening on")
        self.assertRegex(server.text(), r"(?m)^W.*--insecure: everybody who reaches 0\.0\.0\.0")
        server.end()
        server = self.start("local.log", "ps_server", *job, f"--listen=localhost:{port}")
        server.wait_for("listening on")
        self.assertNotIn("insecure", server.text())
        server.end()
        # Incomplete or contradictory flags are refused.
        ps = self.tls("ps-0")
        self.refused(64, ["missing: --tls_key"], "ps_server", *job, *ps[:2])
        self.refused(64, ["missing: --tls_ca, --tls_cert"], "worker", ps[2])
        self.refused(64, ["contradicts"], "ps_server", *job, *ps, "--insecure")
        # Unsuitable files are refused.
        self.refused(66, ["TLS key", "/no/key"], "ps_server", *job, *ps[:2], "--tls_key=/no/key")
        self.refused(65, [f"{certs}/admin.key: is not the key"], "ps_server", *job, *ps[:2],
                     f"--tls_key={certs}/admin.key")
        self.refused(65, ["needs one of role ps"], "ps_server", *job, *self.tls("admin"))
        self.refused(65, ["needs one of role worker"], "worker", *ps)
        self.refused(65, ["worker/0-1", "worker_ids 0 to 2"], "worker", *self.tls("worker-0"), "--num_clones=3")
        os.chmod(certs / "ps-0.key", 0o644)
        self.refused(65, ["mode 0644", "chmod 600"], "ps_server", *job, *ps)
        os.chmod(certs / "ps-0.key", 0o600)
        # With TLS the server may listen on any address.
        server = self.start("tls.log", "ps_server", *job, *ps, beyond)
        server.wait_for("listening on")
        # A worker without TLS cannot talk to this server.
        self.refused(200, ["did not answer for"], "worker", f"--ps=127.0.0.1:{port}", "--peer_deadline=2s")


class Wildcard(TlsTest):

    def test_two_tasks_that_listen_on_all_addresses(self):
        """The certificate is for the host of --ps, which is that of the second task, too."""
        self.make_certs("--ps=127.0.0.1", "--workers=1", "--clones=1")
        port = free_port(2)
        server = self.start("ps.log", "ps_server", f"--pipeline_config_path={self.write_config(steps=5)}",
                            f"--train_dir={self.folder / 'run'}", "--tasks=2", f"--listen=0.0.0.0:{port}",
                            "--state_dir=", *self.tls("ps-0"))
        server.wait_for("listening on")
        flags = (f"--ps=127.0.0.1:{port}", "--peer_deadline=30s", *self.tls("worker-0"))
        check = self.start("check.log", "worker", "--check_cluster", *flags)
        self.assertEqual(check.wait(), 0, check.text())
        self.assertRegex(check.text(), rf"1 +127\.0\.0\.1:{port + 1} +ready")
        worker = self.start("worker.log", "worker", "--num_clones=1", *flags)
        self.assertEqual(worker.wait(), 0, worker.text() + server.text())
        self.assertEqual(server.wait(), 0, server.text())


class Rotation(TlsTest):
    """Replaces the authority and all certificates of a job with two ps_server processes and three clones."""

    def start_job(self, config):
        ports = [free_port(), free_port()]
        cluster = ",".join(f"127.0.0.1:{port}" for port in ports)
        servers = [
            self.start(f"ps{task}.log", "ps_server", f"--pipeline_config_path={config}",
                       f"--train_dir={self.folder / 'run'}", "--tasks=2", f"--task_index={task}",
                       f"--cluster={cluster}", f"--listen=127.0.0.1:{ports[task]}",
                       f"--state_dir={self.folder / 'state'}", "--lease=3s", *self.tls(f"ps-{task}"))
            for task in range(2)]
        worker = self.start("worker.log", "worker", f"--ps=127.0.0.1:{ports[0]}", "--num_clones=3",
                            "--shared_memory=false", "--peer_deadline=60s", *self.tls("worker-0"))
        return servers, worker, ports[0]

    def step(self):
        """Returns the step of the newest checkpoint; the job writes one every second."""
        return max((int(path.name[5:]) for path in (self.folder / "run").glob("ckpt-*[0-9]")), default=0)

    def await_step(self, server, step):
        deadline = time.monotonic() + 120
        while self.step() < step:
            self.assertIsNone(server.popen.poll(), server.text())
            self.assertLess(time.monotonic(), deadline, server.text())
            time.sleep(0.1)

    def await_lines(self, process, words, count):
        """Waits until the words are in the log so many times."""
        deadline = time.monotonic() + 120
        while process.text().count(words) < count:
            self.assertIsNone(process.popen.poll(), process.text())
            self.assertLess(time.monotonic(), deadline, process.text())
            time.sleep(0.1)

    def secrets(self):
        """Returns every base64 line of every present key. No log contains such a line by chance."""
        lines = set()
        for key in self.folder.glob("**/*.key"):
            lines.update(line for line in key.read_text().split("\n") if len(line) > 30 and "-----" not in line)
        self.assertGreaterEqual(len(lines), 8)
        return lines

    def test_rotation_under_load(self):
        # The most verbose logs of gRPC and glog.
        loud = {"GLOG_v": "2", "GRPC_VERBOSITY": "DEBUG", "GRPC_TRACE": "tsi,handshaker,connectivity_state"}
        os.environ.update(loud)
        self.addCleanup(lambda: [os.environ.pop(name) for name in loud])
        parts = ["--ps=127.0.0.1,127.0.0.1", "--workers=1", "--clones=3"]
        certs = self.make_certs(*parts)
        secrets = self.secrets()
        shutil.copytree(certs, self.folder / "former")
        config = self.write_config(steps=100000)
        config.write_text(config.read_text().replace("save_checkpoints_secs: 1000", "save_checkpoints_secs: 1"))
        servers, worker, port = self.start_job(config)
        self.await_step(servers[0], 20)
        commands = [pathlib.Path(f"/proc/{pid}/{what}").read_text()
                    for pid in [worker.popen.pid, *children(worker.popen.pid), *(s.popen.pid for s in servers)]
                    for what in ("cmdline", "environ")]

        # First the new authority is added, then the certificates are replaced, then the old authority is removed.
        self.make_certs("--new_authority")
        time.sleep(2.5)  # nothing tells that gRPC, which looks every second, has read ca.pem
        self.make_certs(*parts)
        secrets |= self.secrets()
        for server in servers:
            server.wait_for("TLS certificate replaced: spiffe://pushpull/e2e/ps")
        self.await_lines(worker, "TLS certificate replaced: spiffe://pushpull/e2e/worker/0-2", 3)  # one of each clone
        self.make_certs("--forget_old_authority")
        time.sleep(2.5)
        self.await_step(servers[0], self.step() + 20)

        # A clone that restarts uses the new certificates.
        victim = children(worker.popen.pid)[1]
        os.kill(victim, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while victim in children(worker.popen.pid) or len(children(worker.popen.pid)) < 3:
            self.assertLess(time.monotonic(), deadline, worker.text())
            time.sleep(0.1)
        self.await_step(servers[0], self.step() + 50)

        # A worker with the old certificates is refused.
        late = self.start("former.log", "worker", f"--ps=127.0.0.1:{port}", "--num_clones=3",
                          "--peer_deadline=2s", *self.tls("worker-0", "former"))
        self.assertEqual(late.wait(), 200, late.text())

        # Only the clone that the test killed has died, and no step was rolled back.
        self.assertEqual(re.findall(r"died \((.*?)\)", worker.text()), ["killed by signal 9"], worker.text())
        for log in [worker.text(), *(server.text() for server in servers)]:
            self.assertNotRegex(log, r"(?m)^E\d{4}")
            self.assertNotIn("rolled back", log)
        servers[0].kill(signal.SIGTERM)
        self.assertEqual(servers[0].wait(), 143, servers[0].text())
        logs = "".join(path.read_text(errors="replace") for path in self.folder.glob("*.log"))
        self.assertIn("gRPC:", logs)
        for secret in secrets:
            self.assertNotIn(secret, logs)
            for text in commands:
                self.assertNotIn(secret, text)
        if not FULL:
            return
        # The result has the same bits as that of an undisturbed job without TLS.
        published = self.step()
        self.train(self.write_config("plain.config", steps=published), "plain", 3, ["--tasks=2"])
        for shard in range(2):
            file = f"ckpt-{published:08d}/shard-{shard:05d}-of-00002.safetensors"
            self.assertEqual((self.folder / "run" / file).read_bytes(), (self.folder / "plain" / file).read_bytes())


if __name__ == "__main__":
    main()
