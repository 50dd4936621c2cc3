"""--check_cluster of the real programs names every peer with its state within bounded time, and its exit code says
whether all of them are ready."""
import socket
import threading
import time

from harness import EndToEndTest, main


class Speaker:
    """A listener that is not a ps_server. It sends `answer` on each connection; if that is None, it stays silent."""

    def __init__(self, answer):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.connections = []
        if answer is not None:
            threading.Thread(target=self.serve, args=(answer,), daemon=True).start()

    def serve(self, answer):
        while True:
            try:
                connection, _ = self.listener.accept()
                connection.sendall(answer)
                self.connections.append(connection)
            except OSError:
                return

    def close(self):
        self.listener.close()
        for connection in self.connections:
            connection.close()


class CheckCluster(EndToEndTest):

    def dead_address(self):
        """Returns an address that refuses connections. Its port is bound, so that no other process takes it."""
        holder = socket.socket()
        holder.bind(("127.0.0.1", 0))
        self.addCleanup(holder.close)
        return "127.0.0.1:%d" % holder.getsockname()[1]

    def speaker(self, answer):
        speaker = Speaker(answer)
        self.addCleanup(speaker.close)
        return speaker.address

    def check(self, program, code, *flags):
        """Runs `program --check_cluster`, checks its exit code, and returns its output."""
        start = time.monotonic()
        process = self.start(f"check{len(self.processes)}.log", program, "--check_cluster", *flags)
        self.assertEqual(process.wait(), code, process.text())
        self.assertLess(time.monotonic() - start, 60)
        return process.text()

    def test_peers_that_do_not_answer(self):
        self.start_server(self.write_config()).wait_for("listening on")
        addresses = [self.address(), self.dead_address(), "ps-2.invalid:2222",
                     self.speaker(b"HTTP/1.1 400 Bad Request\r\n\r\n"), self.speaker(None)]
        text = self.check("worker", 200, "--insecure", "--ps=" + ",".join(addresses))
        for task, words in enumerate(["its job has 1 ps tasks, this process knows 5",
                                      "connection refused by 127.0.0.1", 'the name "ps-2.invalid" does not resolve',
                                      "no call gets through", "stopped or overloaded"]):
            line = next(line for line in text.splitlines() if f"ps task {task} at {addresses[task]} (" in line)
            self.assertIn(words, line)
        self.assertIn("5 of 5 ps tasks are not ready", text)

    def test_complete_job(self):
        config = self.write_config()
        cluster = f"{self.address()}.0,{self.address()}.1"
        # Before any task is started.
        text = self.check("ps_server", 200, f"--cluster={cluster}", "--task_index=1")
        self.assertIn(f"ps task 0 at {self.address()}.0 (unreachable): there is no socket", text)
        self.assertIn("this process", text)
        for i in range(2):
            self.start(f"ps{i}.log", "ps_server", f"--pipeline_config_path={config}", "--state_dir=",
                       f"--train_dir={self.folder / 'run'}", f"--cluster={cluster}", f"--task_index={i}")
        self.processes[-1].wait_for("listening on")
        deadline = time.monotonic() + 60
        while True:
            process = self.start("ready.log", "worker", "--check_cluster", f"--ps={self.address()}.0")
            if process.wait() == 0 or time.monotonic() > deadline:
                break
        text = (self.folder / "ready.log").read_text()
        self.assertIn(f"1     {self.address()}.1", text)
        self.check("worker", 0, f"--ps={cluster}")
        self.check("ps_server", 0, f"--cluster={cluster}", "--task_index=0", f"--pipeline_config_path={config}")
        # A config of another model, and a list of the tasks in the wrong order.
        other = self.write_config("other.config", width=0.25)
        text = self.check("ps_server", 200, f"--cluster={cluster}", "--task_index=1", f"--pipeline_config_path={other}")
        self.assertIn("trains another model", text)
        # What would have this task refused: other settings, another mode, a train_dir of its own.
        task_1 = [f"--cluster={cluster}", "--task_index=1"]
        ours = f"--pipeline_config_path={config}"
        self.check("ps_server", 0, *task_1, ours, f"--train_dir={self.folder / 'run'}")
        other = self.write_config("seed.config", train="seed: 77")
        text = self.check("ps_server", 200, *task_1, f"--pipeline_config_path={other}")
        self.assertIn("(other job): trains with other settings than this task 1 was given", text)
        self.assertIn("-> 77", text)
        self.assertIn("sync_replicas: true -> false", self.check("ps_server", 200, *task_1, ours, "--sync=false"))
        text = self.check("ps_server", 200, *task_1, ours, f"--train_dir={self.folder / 'elsewhere'}")
        self.assertIn(f"train_dir {self.folder / 'elsewhere'} of ps task 1 has no EPOCH", text)
        self.assertFalse((self.folder / "elsewhere").exists())
        text = self.check("worker", 200, "--ps=" + ",".join(reversed(cluster.split(","))))
        self.assertIn("is task 1 of the job, not task 0", text)

    def test_bad_flags(self):
        text = self.check("worker", 64, "--ps=nowhere")
        self.assertIn('flag --ps: address "nowhere" of ps task 0', text)
        text = self.check("ps_server", 64, "--task_index=1", "--tasks=2")
        self.assertIn("give --cluster", text)

    def test_ps_tasks_is_another_name_of_tasks(self):
        for flags in [["--ps_tasks=3"], ["--tasks=3", "--ps_tasks=3"]]:
            text = self.check("ps_server", 64, "--task_index=1", *flags)
            self.assertIn("the addresses of the 3 ps tasks are not known", text)
        text = self.check("ps_server", 64, "--task_index=1", "--cluster=a:1,b:2", "--ps_tasks=3")
        self.assertIn("flag --ps_tasks=3 contradicts the 2 addresses of flag --cluster", text)
        text = self.check("ps_server", 64, "--tasks=2", "--ps_tasks=3")
        self.assertIn("--tasks=2 and --ps_tasks=3 disagree", text)


if __name__ == "__main__":
    main(verbosity=2)
