"""Damaged files: flipped bits and truncation, at random and at the borders of parts; folders removed while read."""
import shutil
import signal
import struct
import time

import engine
import oracle
from engine import TrainingFault, Violation
from job import BY_SIGNAL
from state_files import applied_version

# A start that is refused because of damaged files.
REFUSED = {65, 66}
ANSWER_WITHIN_S = 30
STATE_CONTROL = 2048  # where ps_server/store/state_file.h puts it


def borders(path, data):
    """Offsets where a part of the file begins or ends."""
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
    """Where the parts of a state file end that carry checksums. Behind them lie the variables themselves: a flipped bit
    there is one of the machine's memory, which nothing detects."""
    if len(data) < STATE_CONTROL:
        return len(data)
    return min(len(data), 4096 + 2 * struct.unpack_from("<q", data, 40)[0])


def damage(path, rng):
    """What was done to the file, in words; None: it is empty."""
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
    """The server is killed, files are damaged, and a server starts. Either it serves, and nothing is lost of what the
    whole files hold; or it is refused, then the files are made whole again, and it has to serve all there was."""
    NAME = "data"
    SHAPES = (engine.SYNC, engine.ASYNC)
    INJECTIONS = 15

    def make_job(self, run, shape):
        job = super().make_job(run, shape)
        job.roles["evaluator"].tolerated = REFUSED  # the config that the server has written is damaged too
        return job

    def victims(self, run, job):
        """(what, files) that are damaged together."""
        checkpoints = [oracle.checkpoint_folder(job.train_dir, step)
                       for step in oracle.checkpoint_steps(job.train_dir)]
        shards = [path for folder in checkpoints for path in folder.glob("shard-*")]
        manifests = [folder / "MANIFEST.json" for folder in checkpoints]
        state = list(job.state_dir.glob(f"*-of-{job.shape.tasks}"))  # not what a server has set aside
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
            # The workers may have ended, so what is damaged now nobody could train again.
            role.reasons |= BY_SIGNAL
            return None
        backup = run.folder / "backup"
        shutil.rmtree(backup, ignore_errors=True)
        shutil.copytree(job.train_dir, backup / "run")
        shutil.copytree(job.state_dir, backup / "state")
        words = {damage(path, run.rng) for path in files} - {None}
        fault = f"{what} {' and '.join(sorted(words))}"
        # What whole files hold.
        whole = oracle.newest_verified(job.train_dir)
        if "state" not in what:
            whole = max(whole, held)
        process = job.start("ps0")
        role.reasons |= REFUSED
        if not self.serves(process, job):
            # The files become whole again; whatever else the refused server has done stays done.
            for path in files:
                if path.parent == job.state_dir:
                    if not path.exists():
                        continue  # set aside or removed by the server: it may, where a checkpoint has it all
                    shutil.copyfile(backup / "state" / path.name, path)
                else:
                    path.parent.mkdir(exist_ok=True)
                    shutil.copyfile(backup / "run" / path.relative_to(job.train_dir), path)
            floor = applied if "state" not in what else oracle.newest_verified(job.train_dir)
            process = job.start("ps0")
            if not self.serves(process, job):
                raise Violation(f"{fault}: refused, and refused again with whole files:\n{process.text()[-2000:]}")
            fault += ", refused at first"
        else:
            floor = whole if what != "run_id" else 0
        job.expect_no_loss(fault, 0)
        job.floors.append(oracle.Floor(process.log_path, 0, floor, f"{fault}: a server"))
        job.floors[-1].check()
        return fault

    def serves(self, process, job):
        """True: it serves; False: it is refused. Violation: neither, or it dies in another way."""
        deadline = time.monotonic() + ANSWER_WITHIN_S
        while time.monotonic() < deadline:
            if "serving version" in process.text():
                return True
            code = process.popen.poll()
            if code is not None:
                if code == 0:
                    return True  # the job was over
                if code in REFUSED:
                    return False
                raise Violation(f"a server on damaged files ended with {code}:\n{process.text()[-2000:]}")
            time.sleep(0.01)
        raise Violation(f"a server on damaged files neither serves nor is refused within {ANSWER_WITHIN_S} s\n"
                        f"{job.tails()}")

    def remove_while_read(self, run, job):
        """The newest checkpoint is removed while a server starts or the evaluator reads it."""
        steps = oracle.checkpoint_steps(job.train_dir)
        if not steps or steps[-1] >= job.shape.steps:
            return None  # after the last one nothing is left to make it again from
        job.signal("ps0", signal.SIGKILL)
        job.roles["ps0"].process.popen.wait()
        job.tend()
        time.sleep(run.rng.uniform(0.02, 0.15))
        # Like the server, which removes old checkpoints too: nobody sees half of the folder under its name.
        removed = job.train_dir / ".trash-campaign"
        oracle.checkpoint_folder(job.train_dir, steps[-1]).rename(removed)
        shutil.rmtree(removed)
        return "newest checkpoint removed while read"
