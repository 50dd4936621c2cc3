"""Tests of the fault campaign: each oracle on a planted violation, the table, the switch, and the fault shim."""
import base64
import hashlib
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts" / "campaign"), str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "cluster")]
# pylint: disable=wrong-import-position
import campaign
import engine
import fault_shim
import oracle
import switch
from faults import data
from harness import main
from job import Job, Shape
from oracle import Floor, Violation
from table import Table


def mark(replica, position):
    """Returns a serialised PushMark as a field of PushMarks."""
    body = bytes([1 << 3, replica, oracle.POSITION_FIELD << 3]) + bytes([position])
    return bytes([1 << 3 | 2, len(body)]) + body


class Scratch(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pushpull-"))
        self.addCleanup(shutil.rmtree, self.folder)


class Oracles(Scratch):

    def write_checkpoint(self, step, done=True, epoch=1, shard=b"weights"):
        """Writes a checkpoint of one shard and returns its folder."""
        folder = oracle.checkpoint_folder(self.folder, step)
        folder.mkdir(exist_ok=True)
        name = "shard-00000-of-00001.safetensors"
        (folder / name).write_bytes(shard)
        body = json.dumps({"step": step, "training_done": done, "epoch": epoch, "files": [
            {"name": name, "size_bytes": len(shard), "sha256": hashlib.sha256(shard).hexdigest()}]})[1:]
        digest = hashlib.sha256(body.encode()).hexdigest()
        (folder / "MANIFEST.json").write_text(f'{{"manifest_sha256":"{digest}",\n{body}')
        return folder

    def test_golden_checkpoint_verifies(self):
        manifest = oracle.read_manifest(ROOT / "tests" / "golden" / "checkpoint" / "ckpt-00012000")
        self.assertEqual(manifest["step"], 12000)

    def test_final_checkpoint(self):
        with self.assertRaisesRegex(Violation, "newest checkpoint is of step None"):
            oracle.check_final(self.folder, 20)
        self.write_checkpoint(10)
        with self.assertRaisesRegex(Violation, "newest checkpoint is of step 10, expected 20"):
            oracle.check_final(self.folder, 20)
        folder = self.write_checkpoint(20)
        self.assertEqual(oracle.check_final(self.folder, 20)["step"], 20)
        self.write_checkpoint(20, done=False)
        with self.assertRaisesRegex(Violation, "done: False"):
            oracle.check_final(self.folder, 20)
        shutil.rmtree(folder)
        self.write_checkpoint(20)
        self.write_checkpoint(30)
        with self.assertRaisesRegex(Violation, "step 30, expected 20"):
            oracle.check_final(self.folder, 20)

    def test_every_damaged_byte_and_every_truncation_is_detected(self):
        folder = self.write_checkpoint(20)
        self.write_checkpoint(10)
        for path in sorted(folder.iterdir()):
            whole = path.read_bytes()
            for at in range(len(whole)):
                for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:]):
                    path.write_bytes(damaged)
                    with self.assertRaises(Violation, msg=f"{path.name}, byte {at}"):
                        oracle.read_manifest(folder)
            path.unlink()
            self.assertEqual(oracle.newest_verified(self.folder), 10)
            path.write_bytes(whole)
        self.assertEqual(oracle.newest_verified(self.folder), 20)

    def test_check_identical(self):
        expected = {"shard-0": b"abcd", "shard-1": b"efgh"}
        oracle.check_identical(dict(expected), expected)
        for got in ({"shard-0": b"abcd"}, {"shard-0": b"abcd", "shard-1": b"efgi"}, {}):
            with self.assertRaises(Violation):
                oracle.check_identical(got, expected)
        with self.assertRaises(Violation):
            oracle.check_identical({}, {})  # an empty comparison proves nothing

    def test_exactly_once(self):
        marks = oracle.marks_of({"async_state": base64.b64encode(mark(0, 40) + mark(1, 60)).decode()})
        self.assertEqual(marks, [(0, 40), (1, 60)])
        oracle.check_exactly_once(marks, 100, 2)
        with self.assertRaisesRegex(Violation, "1 batches were trained on twice"):
            oracle.check_exactly_once([(0, 40), (1, 59)], 100, 2)
        with self.assertRaisesRegex(Violation, "1 batches were trained on not at all"):
            oracle.check_exactly_once([(0, 41), (1, 60)], 100, 2)
        with self.assertRaisesRegex(Violation, "marks of replicas"):
            oracle.check_exactly_once([(0, 50), (0, 50)], 100, 2)
        with self.assertRaisesRegex(Violation, "marks of replicas"):
            oracle.check_exactly_once([(0, 50), (2, 50)], 100, 2)

    def test_nothing_lost(self):
        log = self.folder / "ps0.0.log"
        log.write_text("serving version 3 in epoch 1\n")
        begin = log.stat().st_size
        Floor(log, begin, 9, "SIGKILL").check()  # the server died before it served
        Floor(self.folder / "ps0.7.log", 0, 9, "SIGKILL").check()
        with open(log, "a", encoding="utf-8") as file:
            file.write("serving version 9 in epoch 2, 0 steps\nserving version 4 in epoch 3\n")
        Floor(log, begin, 9, "SIGKILL").check()
        with self.assertRaisesRegex(Violation, "serves version 9 in epoch 2 after SIGKILL, which had applied 10"):
            Floor(log, begin, 10, "SIGKILL").check()
        # If this life and the next did not serve, the life after them counts.
        (self.folder / "ps0.1.log").write_text("refused\n")
        (self.folder / "ps0.2.log").write_text("serving version 9 in epoch 4\n")
        with self.assertRaisesRegex(Violation, "ps0.2.log serves version 9"):
            Floor(log, log.stat().st_size, 10, "SIGKILL").check()
        Floor(log, log.stat().st_size, 9, "SIGKILL").check()

    def test_epochs_rise(self):
        oracle.check_epochs(["serving version 3 in epoch 1\n", "", "serving version 3 in epoch 3\n"])
        with self.assertRaisesRegex(Violation, "epoch 1 began after epoch 1"):
            oracle.check_epochs(["serving version 3 in epoch 1\n", "serving version 3 in epoch 1\n"])

    def test_replaced_server_must_not_change_anything(self):
        oracle.check_published_only_by({10: 1}, {10: 1}, 1)
        oracle.check_published_only_by({10: 1}, {10: 1, 20: 2}, 1)
        with self.assertRaisesRegex(Violation, "epoch 1 published step 20"):
            oracle.check_published_only_by({10: 1}, {10: 1, 20: 1}, 1)
        with self.assertRaisesRegex(Violation, "epoch 1 published step 10"):
            oracle.check_published_only_by({10: 2}, {10: 1}, 1)
        with self.assertRaisesRegex(Violation, "checkpoint 10 of epoch 2 was removed"):
            oracle.check_published_only_by({10: 2}, {}, 1)

    def test_slope(self):
        self.assertAlmostEqual(oracle.slope([(0, 5.0), (3600, 7.0), (7200, 9.0)]), 2.0)
        self.assertEqual(oracle.slope([(10, 1.0)]), 0.0)
        self.assertEqual(oracle.slope([(10, 1.0), (10, 2.0)]), 0.0)


class Sleeper(Job):
    """A job whose only process runs an arbitrary command in the role of ps0."""

    def __init__(self, folder, command):
        super().__init__(folder, Shape(), evaluator=False)
        self.roles.pop("worker0")
        self.roles["ps0"].program = shutil.which(command[0])
        self.roles["ps0"].arguments = command[1:]
        self.train_dir.mkdir()


class JobTest(Scratch):

    def test_hang_is_a_violation(self):
        with Sleeper(self.folder, ["sleep", "600"]) as job:
            job.start_all()
            with self.assertRaisesRegex(Violation, "no step after -1 within 0.1 s"):
                job.await_step(patience=0.1)
            with self.assertRaisesRegex(Violation, "ps0 did not end within 0.1 s"):
                job.finish(patience=0.1)

    def test_unexpected_end_is_a_violation(self):
        with Sleeper(self.folder, ["sh", "-c", "exit 70"]) as job:
            job.start_all()
            job.roles["ps0"].process.popen.wait()
            with self.assertRaisesRegex(Violation, "ps0 ended with 70 for no reason"):
                job.restart_ended()

    def test_restarts_a_process_that_a_signal_ended(self):
        with Sleeper(self.folder, ["sleep", "600"]) as job:
            job.start_all()
            first = job.roles["ps0"].pid
            job.signal("ps0", signal.SIGKILL)
            job.roles["ps0"].process.popen.wait()
            job.restart_ended()
            self.assertNotEqual(job.roles["ps0"].pid, first)
            self.assertTrue(job.roles["ps0"].running())


class Failing(engine.Fault):
    NAME = "failing"

    def run(self, run):
        run.injected("a planted fault", 3)
        run.recovered("a planted fault", 1.5)
        if run.index == 1:
            raise Violation("two steps are lost\nand more")
        if run.index == 2:
            raise ZeroDivisionError("a bug in the campaign")


class Reports(Scratch):

    def test_table_and_folders_of_failed_runs(self):
        whole = campaign.Campaign(self.folder, seed=7, minutes=1, repeats=True)
        for index in range(3):
            whole.run_once(Failing(), index)
        whole.table.kind("absent").skipped = "needs root"
        text = whole.table.text()
        self.assertEqual(whole.table.violations(), 2)
        self.assertRegex(text, r"failing +9 +3 +2 VIOLATIONS +1\.50 s")
        self.assertRegex(text, r"  a planted fault +9 +1\.50 s")
        self.assertRegex(text, r"absent +0 +0 +skipped: needs root")
        self.assertIn("VIOLATION in failing, run 1: two steps are lost\n", text)
        self.assertIn("VIOLATION in failing, run 2: the campaign failed: ZeroDivisionError", text)
        self.assertFalse((self.folder / "failing-0").exists())
        left = (self.folder / "failing-1" / "violation.txt").read_text()
        self.assertIn("scripts/campaign/run --only=failing --seed=7 --run=1", left)

    def test_a_run_that_fails_again_gets_a_folder_of_its_own(self):
        for _ in range(3):
            again = campaign.Campaign(self.folder, seed=7, minutes=1, repeats=True)
            for index in (0, 1):
                again.run_once(Failing(), index)
        names = sorted(path.name for path in self.folder.iterdir())
        self.assertEqual(names, ["failing-1", "failing-1-2", "failing-1-3"])
        for name in names:
            self.assertIn("two steps are lost", (self.folder / name / "violation.txt").read_text())

    def test_equal_seed_and_run_give_equal_choices(self):
        draws = [engine.Run(campaign.Campaign(self.folder, 7, 1, True), Failing(), index).rng.random()
                 for index in (4, 4, 5)]
        self.assertEqual(draws[0], draws[1])
        self.assertNotEqual(draws[0], draws[2])

    def test_kind_without_runs_is_marked_not_run(self):
        table = Table()
        table.kind("kill")
        self.assertIn("not run", table.text())

    def test_every_file_in_faults_defines_a_kind(self):
        files = {path.stem for path in (ROOT / "scripts" / "campaign" / "faults").glob("*.py")}
        modules = {type(kind).__module__.split(".")[1] for kind in campaign.find_kinds().values()}
        self.assertEqual(files, modules)

    def test_exit_codes(self):
        run = [str(ROOT / "scripts" / "campaign" / "run")]
        unknown = subprocess.run([*run, "--only=nothing"], capture_output=True, text=True, check=False)
        self.assertEqual(unknown.returncode, 64, unknown.stderr)
        missing = subprocess.run([*run, "--minutes=0"], capture_output=True, text=True, check=False,
                                 env=dict(os.environ, PUSHPULL_BIN_DIR=str(self.folder)))
        self.assertEqual(missing.returncode, 66, missing.stderr)

    def test_kinds_without_jobs_of_the_wanted_mode_are_refused_or_skipped(self):
        sync_only = ["disk_calls", "memory_start", "soak", "two_servers"]
        kinds = campaign.find_kinds()
        self.assertEqual(sorted(name for name, kind in kinds.items() if not kind.shapes("async")), sync_only)
        self.assertTrue(all(kind.shapes("sync") for kind in kinds.values()))
        run = [str(ROOT / "scripts" / "campaign" / "run"), "--minutes=0"]
        (self.folder / "ps_server").touch()
        environment = dict(os.environ, PUSHPULL_BIN_DIR=str(self.folder))

        def output(*flags, code):
            done = subprocess.run([*run, *flags], capture_output=True, text=True, check=False, env=environment)
            self.assertEqual(done.returncode, code, done.stderr)
            return done.stdout + done.stderr

        self.assertIn("--mode=async: these kinds have no async jobs: disk_calls, soak\n",
                      output("--mode=async", "--only=disk_calls,kill,soak", code=64))
        table = output("--mode=async", code=3)
        self.assertRegex(table, r"two_servers +0 +0 +skipped: has no async jobs")
        self.assertRegex(table, r"kill +0 +0 +not run")
        self.assertIn("no fault was injected by data, kill, ", table)
        self.assertNotIn("jobs", output("--mode=sync", code=3))

    def test_every_kind_has_a_run_with_a_fault_even_after_the_deadline(self):
        """Here no run finds an opportunity for a fault before the deadline."""
        class Late(engine.Fault):

            def __init__(self, name):
                self.NAME = name  # pylint: disable=invalid-name

            def run(self, run):
                while run.fault_due():
                    run.injected("late")

        for every_kind in (False, True):
            late = campaign.Campaign(self.folder, seed=1, minutes=0, repeats=False, every_kind=every_kind)
            late.run_until_deadline({name: Late(name) for name in ("one", "two")}, 0)
            counts = {name: (kind.runs, kind.injected()) for name, kind in late.table.kinds.items()}
            self.assertEqual(counts, {"one": (1, 1), "two": (1, 1)} if every_kind else {})


def tcp_frame(payload):
    """Returns an Ethernet frame with a TCP segment from host "a" to host "b" of the test below."""
    ethernet = bytes.fromhex("02000000000b" "02000000000a" "0800")
    ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40 + len(payload), 1, 0, 64, 6, 0, b"\x0a\x4d\0\x0a", b"\x0a\x4d\0\x0b")
    tcp = struct.pack(">HHIIBBHHH", 2222, 40000, 1000, 2000, 5 << 4, 0x18, 500, 0, 0)
    return ethernet + ip + tcp + payload


class Frames(unittest.TestCase):
    """Tests of the switch without TAP devices, and with a clock that the tests set."""

    def setUp(self):
        self.now = 1000.0
        clock = mock.patch.object(switch, "time", types.SimpleNamespace(monotonic=lambda: self.now))
        clock.start()
        self.addCleanup(clock.stop)
        self.sent = []
        self.switch = switch.Switch({"a": 1, "b": 2}, {"a": "02:00:00:00:00:0a", "b": "02:00:00:00:00:0b"},
                                    __import__("random").Random(1))
        self.switch.send = lambda host, frame: self.sent.append((host, frame))
        self.frame = tcp_frame(bytes(2000))

    def passed(self, frames, *rules, wait=0.0):
        self.sent.clear()
        self.switch.rules = [dict({"from": "", "to": ""}, **rule) for rule in rules]
        for _ in range(frames):
            self.switch.receive("a", self.frame)
        self.now += wait
        self.switch.send_due()
        return len(self.sent)

    def test_rules(self):
        self.assertEqual(self.passed(10), 10)
        self.assertEqual(self.passed(10, {"cut": True}), 0)
        self.assertEqual(self.passed(10, {"from": "a", "to": "b", "cut": True}), 0)
        self.assertEqual(self.passed(10, {"from": "b", "cut": True}), 10)
        self.assertAlmostEqual(self.passed(2000, {"loss": 0.05}), 1900, delta=60)
        self.assertAlmostEqual(self.passed(1000, {"duplicate": 0.2}, wait=0.1), 1200, delta=60)
        self.assertEqual(self.passed(10, {"delay": 30}), 0)
        self.switch.later.clear()
        self.assertEqual(self.passed(10, {"delay": 0.01}, wait=0.1), 10)
        # The frames of one second wait in the queue, and half of them pass in half a second.
        self.assertEqual(self.passed(100, {"rate": 10.5 * len(self.frame)}, wait=0.5), 5)
        self.assertEqual(len(self.switch.later), 5)

    def test_reordering(self):
        self.switch.rules = [{"from": "", "to": "", "reorder": 0.5}]
        frames = [tcp_frame(bytes([number]) * 2000) for number in range(50)]
        for frame in frames:
            self.switch.receive("a", frame)
        self.now += 0.1
        self.switch.send_due()
        got = [frame for _, frame in self.sent]
        self.assertNotEqual(got, frames)
        self.assertEqual(sorted(got), sorted(frames))

    def test_reset_in_the_middle_of_data(self):
        self.assertIsNone(switch.as_reset(tcp_frame(b"short")))
        self.assertEqual(self.passed(5, {"reset": 2}), 5)
        resets = [frame for _, frame in self.sent if frame[47] & 4]
        self.assertEqual(len(resets), 2)
        self.assertEqual(resets[0][38:42], struct.pack(">I", 1000))  # the sequence number of the segment
        self.assertEqual(switch.internet_checksum(resets[0][14:34]), 0)
        pseudo = resets[0][26:34] + struct.pack(">BBH", 0, 6, 20)
        self.assertEqual(switch.internet_checksum(pseudo + resets[0][34:54]), 0)


class Damage(Scratch):

    def test_both_kinds_of_damage_change_the_file(self):
        import random
        path = self.folder / "MANIFEST.json"
        words = set()
        for seed in range(200):
            path.write_bytes(b"x" * 300)
            words.add(data.damage(path, random.Random(seed)))
            self.assertNotEqual(path.read_bytes(), b"x" * 300)
        self.assertEqual(words, {"bit flipped", "truncated"})
        path.write_bytes(b"")
        self.assertIsNone(data.damage(path, random.Random(1)))

    def test_state_files_are_damaged_only_where_checksums_protect_them(self):
        import random
        path = self.folder / "state-0-of-1"
        whole = b"PPSTATE\n" + bytes(32) + struct.pack("<q", 100) + bytes(20000)
        for seed in range(200):
            path.write_bytes(whole)
            data.damage(path, random.Random(seed))
            got = path.read_bytes()
            self.assertEqual(got[4096 + 200:], whole[4096 + 200:] if len(got) == len(whole) else b"")


@unittest.skipUnless(fault_shim.LIBRARY.exists(), f"no {fault_shim.LIBRARY}")
class ShimTest(Scratch):
    """Tests of the shim in a Python process, whose os module calls the same functions as our binaries."""

    def setUp(self):
        super().setUp()
        self.seen = self.folder / "seen"
        self.seen.mkdir()
        self.shim = fault_shim.Shim(self.folder / "control", [self.seen])

    def python(self, text, rules=(), record=None):
        """Runs Python code under the shim. Returns its exit code and its output."""
        done = subprocess.run(
            [sys.executable, "-c", "import os, sys, time\nroot = sys.argv[1]\n" + text, str(self.seen)],
            env=self.shim.environment(rules, record), capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout.strip()

    WRITE = ("file = os.open(root + '/f', os.O_WRONLY | os.O_CREAT)\n"
             "for part in range(3):\n"
             "    try: print(os.write(file, b'x' * 100), end=' ')\n"
             "    except OSError as error: print(error.errno, end=' ')\n"
             "os.fsync(file); os.close(file)")

    def test_nth_call_fails_once(self):
        self.assertEqual(self.python(self.WRITE), (0, "100 100 100"))
        self.assertEqual(self.python(self.WRITE, [("write", "*/f", 2, 28)]), (0, "100 28 100"))
        self.assertEqual(self.shim.rules_hit(), 1)
        self.assertEqual(self.python(self.WRITE, [("write", "*/other", 1, 28)]), (0, "100 100 100"))
        self.assertEqual(self.python(self.WRITE, [("write", "*/f", 3, "short")]), (0, "100 100 50"))
        self.assertNotEqual(self.python(self.WRITE, [("fsync", "*/f", 1, 5)])[0], 0)

    def test_kills_right_after_the_call(self):
        code, _ = self.python(self.WRITE, [("write", "*/f", 2, "kill")])
        self.assertEqual(code, -signal.SIGKILL)
        self.assertEqual((self.seen / "f").stat().st_size, 200)

    def test_records_calls(self):
        record = self.folder / "record"
        self.python(self.WRITE + "; os.rename(root + '/f', root + '/g'); os.unlink(root + '/g')", record=record)
        self.assertEqual([call for call, _ in fault_shim.read_record(record, self.seen)],
                         ["create", "write", "write", "write", "fsync", "close", "rename", "unlink"])

    def test_random_calls_fail(self):
        self.shim.fail_at_random(0.5, fault_shim.NO_SPACE, seed=4)  # with this seed the call that opens the file passes
        _, text = self.python(self.WRITE.replace("range(3)", "range(400)"))
        failed = text.split().count("28")
        self.assertGreater(failed, 100)
        self.assertLess(failed, 300)
        self.assertGreaterEqual(self.shim.random_faults(), failed)

    def test_moves_the_wall_clock_but_not_the_monotonic_clock(self):
        before = time.time(), time.monotonic()
        self.shim.move_clock(3600)
        _, text = self.python("print(time.time(), time.monotonic())")
        wall, monotonic = map(float, text.split())
        self.assertAlmostEqual(wall - before[0], 3600, delta=60)
        self.assertAlmostEqual(monotonic - before[1], 0, delta=60)


if __name__ == "__main__":
    main()
