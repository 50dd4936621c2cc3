"""A killed test leaves no process behind: no server, no worker, and no clone, even if it is stopped."""
import os
import signal
import subprocess
import sys
import time

from harness import EndToEndTest, main
from processes import ROOT, clone_pids, send

GONE_WITHIN_S = 30  # the kernel and the warden take milliseconds; the rest is for a busy machine

# A test that starts a whole job, stops one of its clones, prints the pids, and waits to be killed.
VICTIM = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
import harness, processes
class Victim(harness.EndToEndTest):
    def runTest(self):
        config = self.write_config(steps=1000000)
        server = self.start_server(config)
        worker = self.start_worker(clones=2)
        for clone in (0, 1):
            server.wait_for(f"clone {clone} (")
        clones = processes.clone_pids(worker.popen.pid)
        os.kill(clones[0], signal.SIGSTOP)
        if sys.argv[2] == "without warden":
            os.kill(processes.WARDEN._shell.pid, signal.SIGKILL)
        print(self.folder, server.popen.pid, worker.popen.pid, *clones.values(), flush=True)
        time.sleep(600)
Victim().debug()  # an exception ends it with a traceback
"""


def is_alive(pid):
    """Returns whether a process exists and is not a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class HarnessDeath(EndToEndTest):

    def kill_victim(self, how):
        """Starts the victim and kills it. Returns the pids of its server, worker and clones."""
        victim = subprocess.Popen([sys.executable, "-c", VICTIM, str(ROOT / "tests" / "e2e"), how],
                                  env=dict(os.environ, TMPDIR=str(self.folder)), stdout=subprocess.PIPE, text=True)
        try:
            words = victim.stdout.readline().split()
        finally:
            victim.kill()
            victim.wait()
            victim.stdout.close()
        pids = list(map(int, words[1:]))
        for pid in pids:
            self.addCleanup(send, pid, signal.SIGKILL)
        self.assertEqual(len(pids), 4, "the victim did not start its job")
        return pids

    def await_gone(self, pids):
        deadline = time.monotonic() + GONE_WITHIN_S
        while left := [pid for pid in pids if is_alive(pid)]:
            self.assertLess(time.monotonic(), deadline, f"processes {left} outlive the test that started them")
            time.sleep(0.02)

    def test_nothing_outlives_a_killed_test(self):
        self.await_gone(self.kill_victim("with warden"))

    def test_without_the_warden_the_kernel_ends_direct_children(self):
        server, worker, *_ = self.kill_victim("without warden")
        self.await_gone([server, worker])

    def test_is_alive_recognises_a_running_process(self):
        sleeper = subprocess.Popen(["sleep", "600"])
        self.addCleanup(sleeper.wait)
        self.addCleanup(sleeper.kill)
        self.assertTrue(is_alive(sleeper.pid))
        self.assertEqual(clone_pids(sleeper.pid), {})


if __name__ == "__main__":
    main()
