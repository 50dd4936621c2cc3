"""Damaged files: flipped bits and truncation at random places and at the borders of the files' parts, and checkpoints
that are removed while they are read."""
import shutil
import signal
import struct
import time

import engine
import oracle
from engine import TrainingFault, Violation
from job import BY_SIGNAL
from state_files import applied_version

# Exit codes of a server that refuses to start because of damaged files.
REFUSED = {65, 66}
ANSWER_WITHIN_S = 30
STATE_CONTROL = 2048  # offset of the control block, as in ps_server/store/state_file.h


def borders(path, data):
    """Returns the offsets at which parts of the file begin or end."""
    found = {0, len(data)}
    if path.suffix == ".safetensors" and len(data) > 8:
        found |= {8, 8 + struct.unpack("<Q", data[:8])[0]}
    elif path.name == "MANIFEST.json":
        found |= {20, 84, 86}
    elif data[:8] == b"PPSTATE\n" and len(data) >= STATE_CONTROL:
        found |= {8, 12, 48, 56, 2048, 2056, 4096, 4096 + struct.unpack_from("<q", data, 40)[0]}
    elif path.name.startswith("events."):
        found |= {8, 12}
    return sorted(offset for offset in found if offset <= len(data))


def structure_end(data):
    """Returns the offset at which the checksummed parts of a state file end. The variables follow; they have no
    checksum, because a flipped bit there is a memory error, which the server does not detect."""
    if len(data) < STATE_CONTROL:
        return len(data)
    return min(len(data), 4096 + 2 * struct.unpack_from("<q", data, 40)[0])


def damage(path, rng):
    """Flips a bit of the file or truncates it. Returns what was done in words, or None if the file is empty."""
    data = bytearray(path.read_bytes())
    if not data:
        return None
    near = rng.choice(borders(path, data)) if rng.random() < 0.5 else rng.randrange(len(data))
    limit = structure_end(data) if data[:8] == b"PPSTATE\n" else len(data)
    near = min(near, limit - 1)
    if rng.random() < 0.5:
        data[near] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        return "bit flipped"
    path.write_bytes(data[:near])
    return "truncated"


class Data(TrainingFault):
    """Kills the server, damages files and starts a server.

    If the server serves, nothing may be lost that the undamaged files hold. If it refuses to start, the files are
    restored, and the next server has to serve everything that was applied.
    """
    NAME = "data"
    SHAPES = (engine.SYNC, engine.ASYNC)
    INJECTIONS = 15

    def make_job(self, run, shape):
        job = super().make_job(run, shape)
        job.roles["evaluator"].tolerated = REFUSED  # it reads pipeline.config in train_dir, which may be damaged
        return job

    def victims(self, run, job):
        """Returns (name, files) of a random set of files to damage together."""
        checkpoints = [oracle.checkpoint_folder(job.train_dir, step)
                       for step in oracle.checkpoint_steps(job.train_dir)]
        shards = [path for folder in checkpoints for path in folder.glob("shard-*")]
        manifests = [folder / "MANIFEST.json" for folder in checkpoints]
        state = list(job.state_dir.glob(f"*-of-{job.shape.tasks}"))  # without files named *.aside
        choices = [(name, [job.train_dir / name]) for name in ("EPOCH", "run_id", "peer_secret", "pipeline.config")]
        choices += [("hint", [job.train_dir / "checkpoint"]), ("state", state),
                    ("events", list(job.train_dir.glob("events.*"))[-1:])]
        if checkpoints:
            choices += [("newest shard", shards[-1:]), ("newest manifest", manifests[-1:]), ("every shard", shards),
                        ("every manifest", manifests), ("state and newest shard", state + shards[-1:]),
                        ("state and every manifest", state + manifests)]
        what, files = run.rng.choice(choices)
        if what == "run_id" and not checkpoints:
            return "hint", []
        return what, [path for path in files if path.exists()]

    def inject(self, run, job):
        role = job.roles["ps0"]
        if not role.running():
            return None
        if job.applied() >= job.shape.steps:
            return None  # the server is telling the clones that training is over; a kill would only delay that
        if run.rng.random() < 0.15:
            return self.remove_while_read(run, job)
        what, files = self.victims(run, job)
        if not files:
            return None
        role.process.kill(signal.SIGKILL)
        role.process.popen.wait()
        applied = job.applied()
        held = applied_version(job.state_dir, job.shape.tasks)
        if applied >= job.shape.steps:
            # The workers may have ended already, so steps that the damage undoes could not be trained again.
            role.reasons |= BY_SIGNAL
            return None
        backup = run.folder / "backup"
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(job.train_dir, backup / "run")
        shutil.copytree(job.state_dir, backup / "state")
        words = {damage(path, run.rng) for path in files} - {None}
        fault = f"{what} {' and '.join(sorted(words))}"
        # The version that the undamaged files hold.
        whole = oracle.newest_verified(job.train_dir)
        if "state" not in what:
            whole = max(whole, held)
        process = job.start("ps0")
        role.reasons |= REFUSED
        if not self.serves(process, job):
            # Restores the damaged files, but undoes nothing else that the refused server did.
            for path in files:
                if path.parent == job.state_dir:
                    if not path.exists():
                        continue  # the server renamed or removed it, as it may if a checkpoint holds everything
                    shutil.copyfile(backup / "state" / path.name, path)
                else:
                    path.parent.mkdir(exist_ok=True)
                    shutil.copyfile(backup / "run" / path.relative_to(job.train_dir), path)
            floor = applied if "state" not in what else oracle.newest_verified(job.train_dir)
            process = job.start("ps0")
            if not self.serves(process, job):
                raise Violation(f"{fault}: refused, and refused again with restored files:\n{process.text()[-2000:]}")
            fault += ", refused at first"
        else:
            floor = whole if what != "run_id" else 0
        job.expect_no_loss(fault, 0)
        job.floors.append(oracle.Floor(process.log_path, 0, floor, f"{fault}: a server"))
        job.floors[-1].check()
        return fault

    def serves(self, process, job):
        """Waits until the server serves (True) or refuses to start (False). Raises Violation if it does neither in time
        or ends with another exit code."""
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while time.monotonic() < deadline:
            if "serving version" in process.text():
                return True
            code = process.popen.poll()
            if code is not None:
                if code == 0:
                    return True  # the job was over already
                if code in REFUSED:
                    return False
                raise Violation(f"a server on damaged files ended with {code}:\n{process.text()[-2000:]}")
            time.sleep(0.01)
        raise Violation(f"a server on damaged files neither serves nor is refused within {ANSWER_WITHIN_S} s\n"
                        f"{job.tails()}")

    def remove_while_read(self, run, job):
        """Removes the newest checkpoint while a server starts and the evaluator may read it."""
        steps = oracle.checkpoint_steps(job.train_dir)
        if not steps or steps[-1] >= job.shape.steps:
            return None  # training is over, so nothing would write the last checkpoint again
        job.signal("ps0", signal.SIGKILL)
        job.roles["ps0"].process.popen.wait()
        job.restart_ended()
        time.sleep(run.rng.uniform(0.02, 0.15))
        # Like the server, which removes old checkpoints too: nobody sees half of the folder under its name. It leaves
        # train_dir, because a server that starts clears what its predecessors have left there.
        removed = run.folder / "removed_checkpoint"
        oracle.checkpoint_folder(job.train_dir, steps[-1]).rename(removed)
        shutil.rmtree(removed)
        return "newest checkpoint removed while read"
