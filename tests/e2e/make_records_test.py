"""The make_records program: its output, its files and its exit codes."""
import json
import os
import pathlib
import resource
import struct
import subprocess
import tempfile
import unittest
import zlib

from harness import BIN, main


def png(height, width):
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    rows = (b"\0" + bytes(width)) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def annotation(*boxes, width=20, height=10):
    objects = "".join(
        f"<object><name>{name}</name><bndbox><xmin>{x0}</xmin><ymin>{y0}</ymin><xmax>{x1}</xmax>"
        f"<ymax>{y1}</ymax></bndbox></object>" for name, x0, y0, x1, y1 in boxes)
    return (f"<annotation><size><width>{width}</width><height>{height}</height></size>{objects}"
            "</annotation>")


class MakeRecords(unittest.TestCase):

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)
        self.out = self.folder / "out"
        self.out.mkdir()
        self.write("voc/ImageSets/Main/train.txt", "a\nb\n")
        for name in "ab":
            self.write(f"voc/JPEGImages/{name}.png", png(10, 20))
            self.write(f"voc/Annotations/{name}.xml",
                       annotation(("dog", 0, 0, 20, 10), ("cat", 1, 1, 2, 2)))

    def write(self, name, contents):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())

    def run_tool(self, *flags, code=0, **options):
        process = subprocess.run([BIN / "make_records", *flags], capture_output=True, text=True,
                                 timeout=120, **options)
        self.assertEqual(process.returncode, code, process.stderr)
        return process

    def convert(self, *flags, code=0):
        return self.run_tool("--format=voc", f"--input={self.folder}/voc", "--split=train",
                             f"--output={self.out}/train", *flags, code=code)

    def left(self):
        return sorted(os.listdir(self.out))

    def test_check_accepts_the_written_shards_and_label_map(self):
        result = json.loads(self.convert("--shards=2").stdout)
        self.assertEqual((result["images"], result["boxes"]), (2, 4))
        self.assertEqual(self.left(), ["train-00000-of-00002", "train-00001-of-00002", "train.pbtxt"])
        label_map = (self.out / "train.pbtxt").read_text()
        self.assertLess(label_map.index('"cat"'), label_map.index('"dog"'))
        for pattern in ("train@2", "train-*-of-00002"):
            check = self.run_tool(f"--check={self.out}/{pattern}",
                                  f"--label_map={self.out}/train.pbtxt")
            self.assertEqual(json.loads(check.stdout)["boxes"], 4)

    def test_given_label_map_is_used_and_none_is_written(self):
        self.write("map.pbtxt", "item { id: 1 name: 'dog' } item { id: 2 name: 'cat' }")
        self.convert(f"--label_map={self.folder}/map.pbtxt")
        self.assertEqual(self.left(), ["train-00000-of-00001"])
        self.write("map.pbtxt", "item { id: 0 name: 'dog' }")
        refused = self.convert(f"--label_map={self.folder}/map.pbtxt", code=65)
        self.assertIn("map.pbtxt", refused.stderr)
        self.assertIn("reserved for the background", refused.stderr)

    def test_bad_boxes_are_reported_and_refused_unless_skipped(self):
        self.write("voc/Annotations/b.xml",
                   annotation(("dog", 5, 5, 5, 8), ("cat", 1, 1, 30, 2), ("cat", 1, 1, 3, 2)))
        for flags, code in ((["--skip_bad"], 0), ([], 65)):
            process = self.convert(*flags, code=code)
            self.assertIn("b.xml object 0", process.stderr)
            self.assertIn("no area", process.stderr)
            self.assertIn("b.xml object 1", process.stderr)
            self.assertIn("outside the image", process.stderr)
            result = json.loads(process.stdout)
            self.assertEqual((result["boxes"], result["bad_boxes"]), (3, 2))
            self.assertEqual(self.left(), ["train-00000-of-00001", "train.pbtxt"])
            self.assertEqual("files" in result, code == 0)

    def test_clipped_boxes_are_reported_and_written(self):
        self.write("voc/Annotations/b.xml", annotation(("dog", 5, 5, 21, 8), ("cat", 1, 1, 3, 2)))
        process = self.convert()
        self.assertIn("b.xml object 0", process.stderr)
        self.assertIn("clipped", process.stderr)
        result = json.loads(process.stdout)
        self.assertEqual((result["boxes"], result["bad_boxes"], result["clipped_boxes"]), (4, 0, 1))

    def test_damaged_image_is_reported(self):
        self.write("voc/JPEGImages/b.png", png(10, 20)[:60])
        self.assertIn("b.png", self.convert(code=65).stderr)
        self.assertEqual(self.left(), [])
        self.assertEqual(json.loads(self.convert("--skip_bad").stdout)["bad_images"], 1)

    def test_check_reports_damage(self):
        self.convert()
        path = self.out / "train-00000-of-00001"
        whole = path.read_bytes()
        path.write_bytes(whole[:-1])
        self.assertIn("record 1 of", self.run_tool(f"--check={path}", code=65).stderr)
        path.write_bytes(whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:])
        process = self.run_tool(f"--check={path}", code=65)
        self.assertIn("checksum", process.stderr)
        self.assertEqual(json.loads(process.stdout)["bad_images"], 1)

    def test_more_shards_than_the_soft_limit_of_open_files(self):
        self.convert()
        first = self.out / "train-00000-of-00001"
        for shard in range(100):
            os.link(first, self.out / f"many-{shard:05d}-of-00100")
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]

        def check(soft, hard, code):
            return self.run_tool(f"--check={self.out}/many@100", f"--label_map={self.out}/train.pbtxt", code=code,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
        self.assertEqual(json.loads(check(64, hard, 0).stdout)["images"], 200)
        self.assertIn("Too many open files; raise the limit of this process (ulimit -n", check(64, 64, 65).stderr)

    def test_exit_codes(self):
        self.run_tool("--format=tar", code=64)
        self.run_tool("--format=voc", "--split=train", f"--output={self.out}/x", code=64)
        self.convert("--shards=0", code=64)
        self.run_tool("--check=x", "--format=voc", code=64)
        self.run_tool(f"--check={self.folder}/none@2", code=66)
        self.assertIn("there are: train", self.convert("--split=test", code=66).stderr)
        self.assertIn("remote storage", self.run_tool("--check=gs://bucket/x", code=65).stderr)
        self.assertEqual(self.left(), [])


if __name__ == "__main__":
    main()
