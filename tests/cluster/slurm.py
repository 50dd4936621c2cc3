"""Runs a real Slurm on this machine: munge, slurmctld and slurmd.

Needs root and Debian's slurm-wlm and munge. All files and sockets are in one folder; nothing outside it is touched.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "testkit"))
from free_port import free_port  # noqa: E402  pylint: disable=wrong-import-position

CONF = """
ClusterName=pushpull
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmctldTimeout=60
SlurmdTimeout=60
KillWait=10
MinJobAge=300
BatchStartTimeout=30
NodeName=localhost NodeHostname={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=localhost Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "squeue", "scancel", "sinfo")
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"


def missing():
    """Returns why this machine cannot run Slurm; empty if it can."""
    if os.geteuid() != 0:
        return "running Slurm needs root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if absent:
        return (f"no {', '.join(absent)}: apt-get install --no-install-recommends slurm-wlm slurmctld slurmd "
                "slurm-client munge")
    return ""


class Slurm:
    """The daemons of a Slurm, which the constructor starts. close() stops them and their jobs."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True)
        self.folder.chmod(0o755)
        self._daemons = []
        self.environment = dict(os.environ, PATH=PATH, SLURM_CONF=str(self.folder / "slurm.conf"))
        for name in list(self.environment):
            # The test itself may run in a Slurm job, whose variables must not get into this Slurm.
            if name.startswith(("SLURM_JOB", "SLURM_STEP", "SLURM_NODE", "SBATCH_")):
                del self.environment[name]
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def run(self, *command, check=True, **environment):
        """Runs a command of this Slurm and returns its output. Raises AssertionError if it fails and `check` is set."""
        result = subprocess.run([str(word) for word in command], env=dict(self.environment, **environment),
                                capture_output=True, text=True, check=False, timeout=60, cwd=self.folder)
        if check and result.returncode != 0:
            raise AssertionError(f"{command}: {result.returncode}\n{result.stdout}{result.stderr}\n{self.logs()}")
        return result.stdout

    def submit(self, *words, **environment):
        """Submits a job and returns its id."""
        return self.run("sbatch", "--parsable", *words, **environment).strip()

    def job(self, number):
        """Returns the fields that scontrol shows of a job."""
        text = self.run("scontrol", "--oneliner", "show", "job", number)
        return dict(word.split("=", 1) for word in text.split() if "=" in word)

    def await_state(self, number, states, timeout):
        """Waits until the job is in one of the states and returns its fields."""
        deadline = time.monotonic() + timeout
        while (job := self.job(number))["JobState"] not in states:
            if time.monotonic() > deadline:
                raise AssertionError(f"job {number} is {job['JobState']} after {timeout} s, expected "
                                     f"{' or '.join(states)}\n{self.logs()}")
            time.sleep(0.2)
        return job

    def logs(self):
        return "\n".join(f"---- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
                         for path in sorted(self.folder.glob("*.log")))

    def close(self):
        if len(self._daemons) > 1:
            self.run("scancel", "--full", "--signal=KILL", "--user=root", check=False)
            deadline = time.monotonic() + 15
            while self.run("squeue", "--noheader", check=False).strip() and time.monotonic() < deadline:
                time.sleep(0.2)
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons = []

    def _spawn(self, *command):
        with open(self.folder / f"{command[0]}.out.log", "ab") as log:
            self._daemons.append(subprocess.Popen(
                [shutil.which(command[0], path=PATH), *command[1:]], env=self.environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder))

    def _start(self):
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        (self.folder / "slurm.conf").write_text(CONF.format(
            folder=self.folder, host=socket.gethostname().split(".")[0], cpus=os.cpu_count(),
            ctld_port=free_port(), slurmd_port=free_port()))
        # --force lets munged run as root. The system's munged, if there is one, is not touched.
        self._spawn("munged", "--foreground", "--force", f"--key-file={key}",
                    f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                    f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munged.seed")
        self._await(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._spawn("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        self._spawn("slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", "localhost")
        self._await(lambda: "idle" in self.run("sinfo", "--noheader", "--format=%t", check=False),
                    "the node")

    def _await(self, condition, what):
        deadline = time.monotonic() + 30
        while not condition():
            if time.monotonic() > deadline or any(d.poll() is not None for d in self._daemons):
                raise AssertionError(f"{what} did not start\n{self.logs()}")
            time.sleep(0.1)
