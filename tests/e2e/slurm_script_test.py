"""deploy/slurm/train.sbatch with stand-ins for Slurm's commands, on a node whose name is not one of this machine.

tests/cluster/slurm_test.py runs the script under a real Slurm.
"""
import os

from harness import BIN, ROOT, EndToEndTest, main

SRUN = """#!/bin/bash
for rank in $(seq 0 $((SLURM_NTASKS - 1))); do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank bash -c rank > "$LOGS/rank$rank.log" 2>&1 &
done
wait
"""
SLURM = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_NUM_NODES": "1",
         "SLURM_NNODES": "1", "SLURM_STEP_NUM_NODES": "1", "SLURM_JOB_NODELIST": "gnode07",
         "SLURM_STEP_NODELIST": "gnode07", "SLURM_TASKS_PER_NODE": "4", "SLURM_STEP_TASKS_PER_NODE": "4",
         "SLURM_NODEID": "0", "SLURM_CPUS_PER_TASK": "1"}


class SlurmScript(EndToEndTest):

    def run_job(self, **environment):
        """Runs a job on one node until it has ended, and checks that it has trained."""
        commands = self.folder / "commands"
        commands.mkdir()
        for name, script in (("srun", SRUN), ("scontrol", "#!/bin/bash\nexit 1\n")):
            (commands / name).write_text(script)
            (commands / name).chmod(0o755)
        environment = {**os.environ, **SLURM, **environment, "PATH": f"{commands}:{os.environ['PATH']}", "LOGS": str(self.folder),
                       "BIN": str(BIN), "PIPELINE": str(self.write_config(steps=4)), "DATA_DIR": str(self.folder),
                       "TRAIN_DIR": str(self.folder / "run"), "PS_TASKS": "2", "WORKERS": "1", "CLONES": "1",
                       "PORT": str(20000 + os.getpid() % 12000)}  # below those that the kernel gives out
        job = self.start("job.log", "/bin/bash", ROOT / "deploy" / "slurm" / "train.sbatch", env=environment)
        logs = [job.log_path, *(self.folder / f"rank{rank}.log" for rank in range(4))]
        self.assertEqual(job.wait(), 0, [log.read_text() for log in logs if log.exists()])
        self.assertTrue((self.folder / "run" / "ckpt-00000004").is_dir())
        self.assertNotIn("back into the queue", job.text())

    def test_job_on_one_node_needs_no_certificates(self):
        self.run_job()

    def test_job_without_gpus_where_slurm_knows_of_gpus(self):
        self.run_job(CUDA_VISIBLE_DEVICES="NoDevFiles")

    def test_job_without_gpus_where_another_script_hides_them(self):
        self.run_job(CUDA_VISIBLE_DEVICES="-1")


if __name__ == "__main__":
    main()
