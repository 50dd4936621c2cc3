"""worker --image_cache_dir trains from decoded images on the disk, with the same result even if the file is damaged."""
import os
import pathlib
import signal
import time

from harness import PATIENCE_S, SYNTHETIC, EndToEndTest, main
from processes import children

BUILDING = "building the image cache"


class ImageCache(EndToEndTest):

    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache" / "of images"
        self.flag = f"--image_cache_dir={self.cache}"

    def file(self):
        """Returns the path of the only cache file."""
        (path,) = self.cache.glob("images-*.cache")
        return path

    def test_same_bits_as_without_the_cache(self):
        config = self.write_config()
        self.train(config, "plain")
        _, worker = self.train(config, "built", worker_flags=[self.flag])
        self.assertIn(BUILDING, worker.text())
        _, worker = self.train(config, "used", worker_flags=[self.flag])
        self.assertNotIn(BUILDING, worker.text())
        data = bytearray(self.file().read_bytes())
        data[5000] ^= 1
        self.file().write_bytes(data)
        _, worker = self.train(config, "repaired", worker_flags=[self.flag])
        self.assertRegex(worker.text(), "the image cache is built again: .*checksum")
        for run in ("built", "used", "repaired"):
            self.assertEqual(self.checkpoint(20, "plain"), self.checkpoint(20, run), run)

    def test_scaled_down_images_train_too(self):
        config = self.write_config()
        self.train(config, "scaled", worker_flags=[self.flag, "--image_cache_max_side=24"])
        self.assertEqual(self.file().stat().st_size, 16 + 400 * (24 * 24 + 40 + 28) + 88)

    def test_two_workers_of_a_host_build_the_cache_once(self):
        config = self.write_config(reader=SYNTHETIC.format(n=20000, seed=1))
        server = self.start_server(config)
        workers = [
            self.start(f"worker{i}.log", "worker", f"--ps={self.address()}", "--num_clones=1",
                       "--num_workers=2", f"--worker_index={i}", self.flag) for i in range(2)]
        for worker in workers:
            self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(server.wait(), 0, server.text())
        self.assertEqual(sum(worker.text().count(BUILDING) for worker in workers), 1)

    def test_worker_is_killed_while_building(self):
        config = self.write_config(reader=SYNTHETIC.format(n=50000, seed=1))
        self.train(config, "plain")
        server = self.start_server(config)
        self.kill_a_worker_while_it_builds()
        worker = self.start("again.log", "worker", f"--ps={self.address()}", "--num_clones=3", self.flag)
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(server.wait(), 0, server.text())
        self.assertEqual(list(self.cache.glob("*.building")), [])
        self.assertEqual(self.checkpoint(20, "plain"), self.checkpoint(20))

    def kill_a_worker_while_it_builds(self):
        """Kills workers until one leaves an unfinished cache. A fast one may finish its cache before it is stopped."""
        for _ in range(10):
            worker = self.start_worker("run", 3, self.flag)
            while not list(self.cache.glob("*.building")) and not list(self.cache.glob("images-*.cache")):
                self.assertIsNone(worker.popen.poll(), worker.text())
                time.sleep(0.01)
            # While all its processes are stopped, nothing happens between the look at the folder and the kill.
            os.killpg(worker.popen.pid, signal.SIGSTOP)
            for pid in [worker.popen.pid, *children(worker.popen.pid)]:
                self.await_stop(pid)
            finished = list(self.cache.glob("images-*.cache"))
            worker.end()
            if not finished:
                return
            for path in self.cache.iterdir():
                path.unlink()
        self.fail("each of ten workers finished its cache before it was stopped")

    def await_stop(self, pid):
        deadline = time.monotonic() + PATIENCE_S
        while pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZ":
            self.assertLess(time.monotonic(), deadline, f"process {pid} goes on")
            time.sleep(0.01)

    def test_bad_folders_and_flags(self):
        config = self.write_config()
        self.start_server(config)
        worker = self.start_worker("run", 3, f"--image_cache_dir={config}")
        self.assertEqual(worker.wait(), 65, worker.text())
        self.assertIn("is neither a folder nor a link to one", worker.text())
        for flags in (["--image_cache_max_side=24"], [self.flag, "--image_cache_max_side=-1"]):
            worker = self.start_worker("run", 3, *flags)
            self.assertEqual(worker.wait(), 64, worker.text())


if __name__ == "__main__":
    main()
