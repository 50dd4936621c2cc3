"""The examples of the Python package run: with a server of their own, and as clones of `pushpull worker`."""
import importlib.util
import unittest

import numpy

from support import EXAMPLES, PythonJobTest, load_example, main, write_idx

import pushpull



class Examples(PythonJobTest):

    def test_numpy_linear_with_a_server_of_its_own(self):
        process = self.start_python("linear.log", EXAMPLES / "numpy_linear.py")
        self.assertEqual(process.wait(), 0, process.text())
        self.assertIn("y = 3.000 x + 0.500\n", process.text())
        self.assertRegex(process.text(), r"step 200/200 100.0% loss 0\.000")

    def test_numpy_linear_as_three_clones(self):
        config = self.write_config(batch=32, steps=200, name="line")
        server = self.start_server(config)
        worker = self.start_clones(EXAMPLES / "numpy_linear.py", clones=3)
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(server.wait(), 0, server.text())
        for clone in range(3):
            self.assertIn(f"[clone {clone}] y = 3.000 x + 0.500\n", worker.text())

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
    def test_mnist_torch_with_one_command(self):
        rng = numpy.random.default_rng(3)
        for part, count in (("train", 400), ("t10k", 100)):
            labels = numpy.arange(count) % 10
            images = rng.integers(0, 60, (count, 28, 28))
            for image, label in zip(images, labels):  # a bright stripe whose place is the class
                image[2 * label + 4:2 * label + 7] = 250
            write_idx(self.folder / f"{part}-images-idx3-ubyte.gz", images)
            write_idx(self.folder / f"{part}-labels-idx1-ubyte.gz", labels)
        config = self.folder / "short.config"
        text = (EXAMPLES / "mnist.config").read_text()
        # The moving statistics of batch norm need some hundred steps to settle.
        config.write_text(text.replace("1875", "300").replace("batch_size: 96", "batch_size: 24"))
        worker = self.start_python("mnist.log", "-m", "pushpull", "worker", f"--pipeline_config_path={config}",
                                   f"--train_dir={self.folder / 'train'}", "--num_clones=2",
                                   EXAMPLES / "mnist_torch.py", f"--data_dir={self.folder}")
        self.assertEqual(worker.wait(300), 0, worker.text())
        accuracy = float(worker.text().split("accuracy on the test images: ")[1].split()[0])
        self.assertGreater(accuracy, 0.9, "guessing among ten classes gives 0.1")
        self.assertEqual(pushpull.steps(self.folder / "train")[-1], 300)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
    def test_date_phrases_are_translated_by_beam_search(self):
        config = self.folder / "short.config"
        config.write_text((EXAMPLES / "date_phrases.config").read_text().replace("400", "300"))
        worker = self.start_python("dates.log", "-m", "pushpull", "worker", f"--pipeline_config_path={config}",
                                   f"--train_dir={self.folder / 'train'}", "--num_clones=2",
                                   EXAMPLES / "date_phrases.py", "--size=5000", "--test_size=100")
        self.assertEqual(worker.wait(600), 0, worker.text())
        self.assertRegex(worker.text(), r"(9[5-9]|100)\.\d% of 100 unseen dates are translated without a mistake")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
    def test_language_model_comes_near_the_best_prediction(self):
        config = self.folder / "short.config"
        config.write_text((EXAMPLES / "language_model.config").read_text().replace("800", "200"))
        worker = self.start_python("words.log", "-m", "pushpull", "worker", f"--pipeline_config_path={config}",
                                   f"--train_dir={self.folder / 'train'}", "--num_clones=2",
                                   EXAMPLES / "language_model.py", "--size=5000", "--test_size=200")
        self.assertEqual(worker.wait(300), 0, worker.text())
        line = worker.text().split("unseen texts: ")[1]
        perplexity, best_perplexity = (float(part.split()[0].rstrip("),")) for part in
                                       (line.split("perplexity ")[1], line.split("(best possible ")[1]))
        self.assertLess(best_perplexity, perplexity, "no prediction is better than the grammar's own")
        self.assertLess(perplexity, 2.6, "the frequencies of pairs of characters give 4.3")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
    def test_best_prediction_of_a_text_of_the_grammar(self):
        language_model = load_example("language_model")
        # "the " or "a " (3:1), "cat" of weights 4 + 4 among 26 + 14, then " " or "s " (1:1).
        places = language_model.best_prediction("the cats")
        self.assertAlmostEqual(places[0][0], 0.75)
        self.assertTrue(places[0][1])
        self.assertAlmostEqual(numpy.prod([probability for probability, _ in places[1:7]]), 8 / 28.8)
        self.assertAlmostEqual(places[7][0], 0.5)
        for index in range(20):
            text = language_model.make_text(index)
            self.assertEqual(len(text), language_model.LENGTH)
            self.assertTrue(all(0 < probability <= 1 for probability, _ in language_model.best_prediction(text)))

    @unittest.skipUnless(importlib.util.find_spec("torchvision"), "needs torchvision")
    def test_faster_rcnn_finds_bright_squares(self):
        write_voc(self.folder, 24)
        config = self.folder / "short.config"
        text = (EXAMPLES / "faster_rcnn.config").read_text().replace("600", "25").replace("steps: 50", "steps: 3")
        config.write_text(text.replace("batch_size: 8", "batch_size: 4").replace("base: 0.0005", "base: 0.001"))
        arguments = (EXAMPLES / "faster_rcnn_torch.py", f"--data_dir={self.folder}", "--backbone=resnet18",
                     "--height=64")
        worker = self.start_python("cells.log", "-m", "pushpull", "worker", f"--pipeline_config_path={config}",
                                   f"--train_dir={self.folder / 'train'}", "--num_clones=1", *arguments)
        self.assertEqual(worker.wait(300), 0, worker.text())
        evaluation = self.start_python("map.log", *arguments, f"--evaluate={self.folder / 'train'}", "--split=trainval")
        self.assertEqual(evaluation.wait(100), 0, evaluation.text())
        self.assertRegex(evaluation.text(), r"step 25: mAP@0.5 \d\.\d+ on 24 images of trainval \(RBC ")
        self.assertGreater(float(evaluation.text().split("mAP@0.5 ")[1].split()[0]), 0.5, evaluation.text())

    def test_mean_average_precision_as_computed_by_hand(self):
        metrics = load_example("voc_metrics").VocMetrics()
        # Scores 0.9: hit. 0.8: the same box again, false, although its IoU with the second box is not the largest.
        # 0.7: IoU 50/150, false. 0.6: hit. The third box is never found. Precision 1, 1/2, 1/3, 2/4 at recalls 1/3, 2/3.
        metrics.add_image({"boxes": [[0, 0, 10, 10], [20, 0, 30, 10], [40, 0, 50, 10]], "labels": [1, 1, 1]},
                          {"boxes": [[20, 0, 30, 10], [0, 0, 10, 10], [1, 0, 11, 10], [45, 0, 55, 10], [7, 7, 7, 9]],
                           "labels": [1, 1, 1, 1, 1], "scores": [0.6, 0.9, 0.8, 0.7, 0.99]})
        # Class 2: an IoU of exactly 0.5 is a hit, and a match of a difficult box counts neither way.
        metrics.add_image({"boxes": [[0, 0, 10, 10], [50, 50, 60, 60]], "labels": [2, 2], "difficult": [False, True]},
                          {"boxes": [[50, 50, 60, 60], [0, 0, 10, 5]], "labels": [2, 2], "scores": [0.9, 0.1]})
        # Class 3 is only a false positive: it has no box to find, so it has no average precision.
        metrics.add_image({"boxes": numpy.zeros((0, 4)), "labels": []},
                          {"boxes": [[0, 0, 5, 5], [0, 0, 5, 5]], "labels": [3, 1], "scores": [0.5, 0.95]})
        # The false positive of class 1 at 0.95 comes first: precision 0, 1/2, 1/3, 1/4, 2/5; envelope 1/2 and 2/5.
        by_class = metrics.by_class()
        self.assertEqual(list(by_class), [1, 2])
        self.assertAlmostEqual(by_class[1], (1 / 2 + 2 / 5) / 3)
        self.assertAlmostEqual(by_class[2], 1.0)
        self.assertAlmostEqual(metrics.mean(), (0.3 + 1.0) / 2)


def write_voc(folder, count):
    """Writes images with one bright square each on a dark ground, in Pascal VOC's layout."""
    import PIL.Image  # pylint: disable=import-outside-toplevel
    for part in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (folder / part).mkdir(parents=True)
    rng = numpy.random.default_rng(4)
    for i in range(count):
        side, (x, y) = int(rng.integers(16, 28)), rng.integers(2, 34, 2)
        image = numpy.full((64, 80, 3), 40, numpy.uint8)
        image[y:y + side, x:x + side] = 230
        PIL.Image.fromarray(image).save(folder / "JPEGImages" / f"{i}.jpg", quality=95)
        box = "".join(f"<{tag}>{value}</{tag}>" for tag, value in
                      (("xmin", x), ("ymin", y), ("xmax", x + side), ("ymax", y + side)))
        (folder / "Annotations" / f"{i}.xml").write_text(
            f"<annotation><object><name>RBC</name><difficult>0</difficult><bndbox>{box}</bndbox></object></annotation>")
    (folder / "ImageSets" / "Main" / "trainval.txt").write_text("".join(f"{i}\n" for i in range(count)))


if __name__ == "__main__":
    main()
