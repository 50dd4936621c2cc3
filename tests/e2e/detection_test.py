"""Trains a small detector on drawn shapes with three clones while an evaluator follows, and checks its mAP."""
import json
import re
import subprocess
import sys

from harness import ROOT, EndToEndTest, main

sys.path.insert(0, str(ROOT / "scripts"))
import plot_events  # pylint: disable=wrong-import-position

STEPS = 400


class Detection(EndToEndTest):

    def write_detector_config(self):
        """Writes a smaller form of the digits detector that needs no files: one of three shapes per image, at 64x64."""
        text = (ROOT / "deploy/pipelines/ssd_mobilenet_v2_digits.config").read_text()
        text = re.sub(r"\n *digits \{[^}]*\}", "", text)
        for pattern, replacement in [
                (r"\b160\b", "64"), (r"num_classes: 10", "num_classes: 3"), (r"max_objects: \d+", "max_objects: 1"),
                (r"(num_steps|total_steps): \d+", rf"\1: {STEPS}"), (r"warmup_steps: \d+", "warmup_steps: 20"),
                (r"batch_size: 12", "batch_size: 32"), (r"num_layers: 6", "num_layers: 3"),
                (r"type: \"ssd_mobilenet_v2\"", r"\g<0> num_layers: 3"), (r"decay: 0.99", "decay: 0.9"),
                (r"num_examples: 500 seed: 2", "num_examples: 60 seed: 2"), (r"save_checkpoints_secs: \d+", "save_checkpoints_steps: 120"),
                (r'metrics_set: .*', 'metrics_set: "pascal_voc_detection_metrics" '
                                     'metrics_set: "coco_detection_metrics"'), (r"eval_interval_secs: \d+",
                                                                                "eval_interval_secs: 0")]:
            text, count = re.subn(pattern, replacement, text)
            self.assertGreater(count, 0, pattern)
        path = self.folder / "detector.config"
        path.write_text(text)
        return path

    def test_learns_and_the_evaluator_reports(self):
        config = self.write_detector_config()
        evaluator = self.start("follower.log", "evaluator", f"--checkpoint_dir={self.folder / 'run'}", "--wait_secs=60")
        self.train(config, "run", 3)
        self.assertEqual(evaluator.wait(), 0, evaluator.text())

        scalars = plot_events.read_scalars(self.folder / "run")
        losses = [value for _, value in sorted(scalars["Loss/total_loss"].items())]
        count = len(losses) // 10
        self.assertLess(sum(losses[-count:]), 0.7 * sum(losses[:count]), "the loss did not fall")
        for tag in ("Loss/localization_loss", "Loss/classification_loss", "Loss/regularization_loss",
                    "HardExampleMiner/NumPositives", "TargetAssignment/AvgNumPositiveAnchorsPerImage"):
            self.assertIn(tag, scalars)
        metrics = plot_events.read_scalars(self.folder / "run" / "eval")
        for tag in ("PascalBoxes_Precision/mAP@0.5IOU", "DetectionBoxes_Precision/mAP",
                    "Losses/Loss/localization_loss"):
            self.assertIn(STEPS, metrics[tag])

        once = self.start("once.log", "evaluator", "--run_once", f"--checkpoint_dir={self.folder / 'run'}",
                          stdout=subprocess.PIPE)
        out, _ = once.popen.communicate(timeout=120)
        self.assertEqual(once.popen.returncode, 0, once.text())
        result = json.loads(out)
        self.assertEqual(result["step"], STEPS)
        self.assertGreater(result["PascalBoxes_Precision/mAP@0.5IOU"], 0.2)
        self.assertLess(abs(result["PascalBoxes_Precision/mAP@0.5IOU"] - result["DetectionBoxes_Precision/mAP@.50IOU"]),
                        0.1, "VOC's and COCO's mAP at IoU 0.5 should be nearly equal")
        self.check_detect()
        self.check_names()

    def check_names(self):
        """Runs detect with the label map of the config, whose path begins in --data_dir, and without it."""
        config = self.folder / "run" / "pipeline.config"
        head, reader, _ = config.read_text().rpartition("eval_input_reader")
        config.write_text(f'{head}{reader} {{ label_map_path: "data/shapes.pbtxt"\n'
                          'tf_record_input_reader { input_path: "data/none" } }\n')
        (self.folder / "data").mkdir()
        (self.folder / "data" / "shapes.pbtxt").write_text('item { id: 1 name: "one" } item { id: 3 name: "three" }\n')
        names = {1: "one", 2: "2", 3: "three"}
        for log, flags, expected in (
                ("data_dir.log", [f"--data_dir={self.folder}"], names),
                ("no_names.log", [], {i: str(i) for i in names}),
                ("label_map.log", [f"--label_map={self.folder}/data/shapes.pbtxt"], names)):
            detect = self.start(log, "detect", f"--checkpoint_dir={self.folder / 'run'}", "--min_score=0",
                                f"--output_dir={self.folder / 'named'}", *flags, str(self.folder / "grey.pgm"),
                                stdout=subprocess.PIPE)
            out, _ = detect.popen.communicate(timeout=60)
            self.assertEqual(detect.popen.returncode, 0, detect.text())
            found = json.loads(out)["detections"]
            self.assertTrue(found)
            for detection in found:
                self.assertEqual(detection["name"], expected[detection["class"]])
            self.assertEqual("give --data_dir, or the names as --label_map" in detect.text(), not flags)
        for flag, code in (("--label_map=/nonexistent", 66), ("--step=-7", 64), ("--min_score=50", 64)):
            refused = self.start("refused.log", "detect", f"--checkpoint_dir={self.folder / 'run'}", flag,
                                 f"--output_dir={self.folder / 'named'}", str(self.folder / "grey.pgm"))
            self.assertEqual(refused.wait(), code, refused.text())
            self.assertIn(flag.partition("=")[2].strip("-"), refused.text())
        # The scores are then those of the network, which have no bounds.
        config.write_text(config.read_text().replace("score_converter: SIGMOID", "score_converter: IDENTITY"))
        detect = self.start("identity.log", "detect", f"--checkpoint_dir={self.folder / 'run'}", "--min_score=1.5",
                            f"--output_dir={self.folder / 'named'}", str(self.folder / "grey.pgm"),
                            stdout=subprocess.PIPE)
        out, _ = detect.popen.communicate(timeout=60)
        self.assertEqual(detect.popen.returncode, 0, detect.text())
        self.assertFalse([found for found in json.loads(out)["detections"] if found["score"] < 1.5])

    def check_detect(self):
        """Runs detect on a grey image that is not square, and checks its boxes and its drawing."""
        (self.folder / "grey.pgm").write_bytes(b"P5 80 60 255\n" + bytes(range(80)) * 60)
        detect = self.start("detect.log", "detect", f"--checkpoint_dir={self.folder / 'run'}", "--min_score=0",
                            f"--output_dir={self.folder / 'drawn'}", "--max_boxes=5", str(self.folder / "grey.pgm"),
                            stdout=subprocess.PIPE)
        out, _ = detect.popen.communicate(timeout=60)
        self.assertEqual(detect.popen.returncode, 0, detect.text())
        found = json.loads(out)
        self.assertEqual((found["height"], found["width"], len(found["detections"])), (60, 80, 5))
        scores = [d["score"] for d in found["detections"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        for box in (d["box"] for d in found["detections"]):
            self.assertTrue(0 <= box["ymin"] <= box["ymax"] <= 60 and 0 <= box["xmin"] <= box["xmax"] <= 80, box)
        self.assertEqual([path.suffix for path in (self.folder / "drawn").iterdir()], [".png"])

        drawing = self.folder / "drawn" / "grey.pgm.png"
        before = drawing.read_bytes()
        (self.folder / "other").mkdir()
        same_name = self.folder / "other" / "grey.pgm"
        same_name.write_bytes((self.folder / "grey.pgm").read_bytes())
        for images, message in (([drawing], "would overwrite the image"),
                                ([self.folder / "grey.pgm", same_name], "would overwrite each other")):
            refused = self.start("refused.log", "detect", f"--checkpoint_dir={self.folder / 'run'}",
                                 f"--output_dir={self.folder / 'drawn'}", *map(str, images))
            self.assertEqual(refused.wait(), 64, refused.text())
            self.assertIn(message, refused.text())
        self.assertEqual(drawing.read_bytes(), before)


if __name__ == "__main__":
    main()
