"""Trains a small classifier on folders of images, and checks what `detect` prints about images."""
import json
import subprocess

from harness import ADAM, EndToEndTest, main

COLOURS = {"dark": 30, "light": 220}


class Classification(EndToEndTest):

    def write_images(self, split):
        """Writes ten grey images of each class into the subfolders of photos/split, and returns that folder."""
        for name, level in COLOURS.items():
            folder = self.folder / "photos" / split / name
            folder.mkdir(parents=True)
            for k in range(10):
                pixels = bytes((level + (7 * k + i) % 20) % 256 for i in range(40 * 40))
                (folder / f"{name}{k}.pgm").write_bytes(b"P5 40 40 255\n" + pixels)
        return self.folder / "photos" / split

    def detect(self, *arguments, code=0):
        """Runs detect and returns the parsed lines of its output and its log."""
        process = self.start("detect.log", "detect", f"--checkpoint_dir={self.folder / 'run'}", *arguments,
                             stdout=subprocess.PIPE)
        out, _ = process.popen.communicate(timeout=60)
        self.assertEqual(process.popen.returncode, code, process.text())
        return [json.loads(line) for line in out.splitlines()], process.text()

    def test_prints_the_most_probable_classes(self):
        reader = 'image_folder_input_reader {{ path: "{}" }}'
        # With momentum, and with a smaller network, whether it learns within as many steps depends on the seed.
        config = self.write_config(reader=reader.format(self.write_images("train")), batch=20, steps=100, width=0.35,
                                   optimizer=ADAM, eval_reader=reader.format("photos/test"))
        config.write_text(config.read_text().replace("num_classes: 4", "num_classes: 2"))
        self.train(config, "run", 2)
        test = self.write_images("test")

        found, _ = self.detect(f"--data_dir={self.folder}", test / "light", f"{test}/dark/dark[0-2].p*")
        paths = [test / "light" / f"light{k}.pgm" for k in range(10)] + \
            [test / "dark" / f"dark{k}.pgm" for k in range(3)]
        self.assertEqual([entry["image"] for entry in found], [str(path) for path in paths])
        right = 0
        for path, entry in zip(paths, found):
            self.assertEqual((entry["height"], entry["width"]), (40, 40))
            classes = entry["classes"]
            self.assertEqual({(c["class"], c["name"]) for c in classes}, {(0, "dark"), (1, "light")})
            self.assertAlmostEqual(sum(c["probability"] for c in classes), 1)
            self.assertGreaterEqual(classes[0]["probability"], 0.5)
            right += classes[0]["name"] == path.parent.name
        self.assertGreaterEqual(right, 12, "dark and light images are easy to tell apart")

        (self.folder / "photos" / "train").rename(self.folder / "photos" / "moved")
        (one,), _ = self.detect("--top_k=1", "--data_dir=/nonexistent", test / "dark" / "dark0.pgm")
        self.assertEqual(len(one["classes"]), 1)
        self.assertNotIn("name", one["classes"][0])

        self.assertIn(f"{self.folder}/*.png", self.detect(f"{self.folder}/*.png", code=66)[1])
        self.assertIn("photos: no image", self.detect(self.folder / "photos", code=66)[1])
        self.assertIn("--top_k=0", self.detect("--top_k=0", test / "dark", code=64)[1])

        broken = test / "dark" / "dark1.pgm"
        broken.write_bytes(b"rubbish")
        found, log = self.detect(f"{test}/dark/dark[0-2].p*", code=65)
        self.assertEqual([entry["image"] for entry in found], [f"{test}/dark/dark{k}.pgm" for k in (0, 2)])
        self.assertIn(f"1 of 3 images could not be read; the first: {broken}", log)


if __name__ == "__main__":
    main()
