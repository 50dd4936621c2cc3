"""Helpers of the cluster tests: jobs of several ps_server and worker processes, and their applied steps."""
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from harness import ROOT, EndToEndTest, main  # noqa: F401  pylint: disable=unused-import,wrong-import-position
from state_files import applied_version  # pylint: disable=wrong-import-position

FULL = os.environ.get("PUSHPULL_TEST_FULL") == "1"
MNIST = pathlib.Path(os.environ.get("PUSHPULL_MNIST_DIR", ROOT.parent / "shared" / "data" / "mnist"))
MNIST_CONFIG = ROOT / "deploy" / "pipelines" / "mobilenet_v2_mnist.config"


class ClusterTest(EndToEndTest):

    def state_dir(self, run):
        return self.folder / f"{run}.state"

    def applied(self, run, tasks=2):
        """Returns the newest version that all tasks hold; -1 if there is none."""
        return applied_version(self.state_dir(run), tasks)

    def await_applied(self, run, version, patience):
        """Waits until all tasks hold the version. Returns the seconds it took, or None after `patience` seconds."""
        begin = time.monotonic()
        while self.applied(run) < version:
            if time.monotonic() - begin > patience:
                return None
            time.sleep(0.01)
        return time.monotonic() - begin

    def start_task(self, run, config, index, addresses, *flags, log=None, **options):
        """Starts the ps_server process of one task."""
        return self.start(log or f"{run}.ps{index}.log", "ps_server", f"--tasks={len(addresses)}",
                          f"--task_index={index}", f"--cluster={','.join(addresses)}",
                          f"--pipeline_config_path={config}", f"--train_dir={self.folder / run}",
                          f"--state_dir={self.state_dir(run)}", *flags, **options)

    def start_cluster_worker(self, run, index, workers, clones, address, *flags, **options):
        """Starts a worker that does not use shared memory, as if it were on another host than the ps tasks."""
        return self.start(f"{run}.worker{index}.log", "worker", f"--ps={address}",
                          f"--num_workers={workers}", f"--worker_index={index}",
                          f"--num_clones={clones}", "--shared_memory=false", *flags, **options)

    def shards(self, step, run="run"):
        """Returns the bytes of all shards of a checkpoint."""
        folder = self.folder / run / f"ckpt-{step:08d}"
        return [path.read_bytes() for path in sorted(folder.glob("shard-*.safetensors"))]

    def logs(self):
        """Returns the ends of all logs."""
        return "\n".join(f"---- {p.log_path.name}\n{p.text()[-3000:]}" for p in self.processes)
