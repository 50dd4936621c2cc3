"""The exporter on checkpoints of short training runs: its files, its output and its exit codes."""
import json
import os
import pathlib
import re
import struct
import subprocess

from harness import BIN, ROOT, EndToEndTest, main, read_safetensors
from protobuf_fields import fields

EMA = "/ExponentialMovingAverage"


class OnnxFile:
    """The parts of an ONNX model that the tests check, found by ONNX's field numbers."""

    def __init__(self, data):
        model = fields(data)
        self.ir_version = model[1][0]
        self.opset = fields(model[8][0])[2][0]
        entries = [fields(entry) for entry in model[14]]
        self.metadata = {entry[1][0].decode(): entry[2][0].decode() for entry in entries}
        graph = fields(model[7][0])
        nodes = [fields(node) for node in graph[1]]
        self.operators = [node[4][0].decode() for node in nodes]
        self.read = {name.decode() for node in nodes for name in node[1] if name}
        self.made = {name.decode() for node in nodes for name in node[2]}
        self.inputs = [fields(value)[1][0].decode() for value in graph[11]]
        self.outputs = [fields(value)[1][0].decode() for value in graph[12]]
        self.constants = {}
        for constant in map(fields, graph[5]):
            if constant[2][0] == 1:
                raw = constant[9][0]
                self.constants[constant[8][0].decode()] = struct.unpack(f"<{len(raw) // 4}f", raw)
            else:
                self.constants[constant[8][0].decode()] = None


class Exporter(EndToEndTest):

    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"
        self.out.mkdir()

    def export(self, output, *flags, run="run", code=0):
        """Runs the exporter and checks its exit code. Returns the JSON from stdout, or stderr if the code is not 0."""
        process = subprocess.run([BIN / "exporter", f"--checkpoint_dir={self.folder / run}", f"--output={output}", *flags],
                                 capture_output=True, text=True, timeout=120)
        self.assertEqual(process.returncode, code, process.stderr)
        return json.loads(process.stdout) if code == 0 else process.stderr

    def train_classifier(self, optimizer="", **changes):
        config = self.write_config(steps=6, batch=8, **changes)
        text = config.read_text()
        if optimizer:
            text = text.replace("use_moving_average: false", optimizer)
        config.write_text(text)
        self.train(config, clones=1)

    def check_onnx(self, path):
        """Checks that every value that the model reads is defined and every constant is used. Returns an OnnxFile."""
        model = OnnxFile(path.read_bytes())
        self.assertEqual((model.ir_version, model.opset), (7, 13))
        known = model.made | set(model.inputs) | set(model.constants)
        self.assertLessEqual(model.read, known)
        self.assertLessEqual(set(model.outputs), known)
        self.assertEqual(set(model.constants) - model.read, set())
        self.assertNotIn("BatchNormalization", model.operators)
        return model

    def test_classifier_in_both_formats_with_raw_and_ema_weights(self):
        self.train_classifier("use_moving_average: true moving_average_decay: 0.5")
        trained = read_safetensors(self.checkpoint(6))
        name = "MobilenetV2/Conv/weights"
        folded = {}
        for weights in ("raw", "ema"):
            file = self.out / f"{weights}.safetensors"
            printed = self.export(file, f"--weights={weights}")
            exported = read_safetensors(file.read_bytes())
            plain = {key for key in trained if not key.endswith((EMA, "/Momentum"))}
            self.assertEqual(set(exported), plain)
            for key in plain:
                source = key + EMA if weights == "ema" and key + EMA in trained else key
                self.assertEqual(exported[key], trained[source], key)
            self.assertEqual(printed, {"output": str(file), "format": "safetensors", "model": "MobilenetV2", "step": 6,
                                       "weights": weights, "variables": len(plain), "bytes": file.stat().st_size})

            file = self.out / f"{weights}.onnx"
            self.assertEqual(self.export(file, f"--weights={weights}")["format"], "onnx")
            model = self.check_onnx(file)
            self.assertEqual((model.inputs, model.outputs), (["input"], ["logits", "probabilities"]))
            self.assertEqual((model.metadata["step"], model.metadata["weights"]), ("6", weights))
            scale = [gamma / (variance + 0.001) ** 0.5 for gamma, variance in
                     zip(exported["MobilenetV2/Conv/BatchNorm/gamma"],
                         exported["MobilenetV2/Conv/BatchNorm/moving_variance"])]
            self.assertEqual(len(model.constants[name]), len(exported[name]))
            for at, value in enumerate(exported[name]):  # from [3, 3, 1, channels] to [channels, 1, 3, 3]
                pixel, channel = divmod(at, len(scale))
                self.assertAlmostEqual(model.constants[name][9 * channel + pixel], value * scale[channel], places=5)
            folded[weights] = model.constants[name]
        self.assertNotEqual(folded["raw"], folded["ema"])

        printed = self.export(self.out / "heads.onnx", "--heads=raw", "--weights=ema")
        model = self.check_onnx(self.out / "heads.onnx")
        self.assertEqual((model.inputs, model.outputs), (["input"], ["logits", "probabilities"]))
        self.assertEqual(model.constants[name], folded["ema"])
        heads = json.loads(pathlib.Path(printed["heads_file"]).read_text())
        self.assertEqual((heads["weights"], heads["num_classes"], heads["input"]["channels"]), ("ema", 4, "grey"))
        self.assertNotIn("class_names", heads)

        # A full model in its place takes the description of the old one away.
        self.export(self.out / "heads.onnx")
        self.assertFalse((self.out / "heads.heads.json").exists())

        # Without --weights the config decides, as in the evaluator.
        self.assertEqual(self.export(self.out / "auto.onnx")["weights"], "raw")
        config = self.folder / "run" / "pipeline.config"
        config.write_text(re.sub(r"eval_config \{", "eval_config { use_moving_averages: true", config.read_text()))
        self.assertEqual(self.export(self.out / "auto.onnx")["weights"], "ema")
        self.assertEqual((self.out / "auto.onnx").read_bytes(), (self.out / "ema.onnx").read_bytes())
        self.assertEqual(sorted(os.listdir(self.out)),
                         ["auto.onnx", "ema.onnx", "ema.safetensors", "heads.onnx", "raw.onnx", "raw.safetensors"])

    def test_detector_includes_non_maximum_suppression(self):
        text = (ROOT / "deploy/pipelines/ssd_mobilenet_v2_digits.config").read_text()
        for pattern, replacement in [(r"\n *digits \{[^}]*\}", ""), (r"\b160\b", "64"), (r"num_classes: 10", "num_classes: 3"),
                                     (r"max_objects: \d+", "max_objects: 2"), (r"(num_steps|total_steps): \d+", r"\1: 3"),
                                     (r"warmup_steps: \d+", "warmup_steps: 1"), (r"batch_size: 12", "batch_size: 4")]:
            text, count = re.subn(pattern, replacement, text)
            self.assertGreater(count, 0, pattern)
        config = self.folder / "detector.config"
        config.write_text(text)
        self.train(config, clones=1)
        self.assertEqual(self.export(self.out / "model.onnx")["model"], "ssd_mobilenet_v2")
        model = self.check_onnx(self.out / "model.onnx")
        self.assertEqual(model.inputs, ["image_tensor"])
        self.assertEqual(sorted(model.outputs), ["detection_boxes", "detection_classes", "detection_scores",
                                                 "num_detections", "raw_detection_boxes", "raw_detection_scores"])
        for operator in ("NonMaxSuppression", "TopK", "Resize"):
            self.assertEqual(model.operators.count(operator), 1, operator)
        self.check_raw_heads(model)
        self.export(self.out / "model.safetensors")
        self.assertIn("BoxPredictor_0/ClassPredictor/biases",
                      read_safetensors((self.out / "model.safetensors").read_bytes()))

    def check_raw_heads(self, full):
        """Exports the detector with raw heads, and compares it with the full model."""
        (self.out / "names.pbtxt").write_text("item { id: 2 name: 'disc' }")
        printed = self.export(self.out / "raw.onnx", "--heads=raw", f"--label_map={self.out / 'names.pbtxt'}")
        self.assertEqual(printed["heads_file"], str(self.out / "raw.heads.json"))
        self.assertEqual(printed["bytes"], (self.out / "raw.onnx").stat().st_size)
        raw = self.check_onnx(self.out / "raw.onnx")
        self.assertEqual((raw.inputs, raw.outputs), (["input"], ["box_encodings", "class_predictions_with_background"]))
        self.assertEqual((raw.metadata["heads"], full.metadata["heads"]), ("raw", "full"))
        for operator in ("NonMaxSuppression", "TopK", "Resize", "Shape", "Cast"):
            self.assertNotIn(operator, raw.operators)
        heads = json.loads((self.out / "raw.heads.json").read_text())
        self.assertEqual((heads["input"]["shape"], heads["class_names"]), ([1, 3, 64, 64], ["", "disc"]))
        self.assertEqual((str(heads["step"]), heads["run_id"]), (raw.metadata["step"], raw.metadata["run_id"]))
        # The full model has the anchors' centres as a constant.
        centers = full.constants["post_processing/anchor_centers"]
        self.assertEqual(len(centers), 2 * len(heads["anchors"]))
        for i, (ymin, xmin, ymax, xmax) in enumerate(heads["anchors"]):
            self.assertAlmostEqual((ymin + ymax) / 2, centers[2 * i], places=6)
            self.assertAlmostEqual((xmin + xmax) / 2, centers[2 * i + 1], places=6)

    def test_errors_name_the_problem_and_leave_no_files(self):
        self.train_classifier()
        good = self.out / "model.onnx"
        good.write_text("what was there before")
        self.assertIn(".onnx or .safetensors", self.export(self.out / "model.pb", code=64))
        self.assertIn("raw, ema or auto", self.export(good, "--weights=best", code=64))
        self.assertIn("--step", self.export(good, "--step=-2", code=64))
        self.assertIn("--heads: expected full or raw", self.export(good, "--heads=none", code=64))
        self.assertIn("end --output with .onnx", self.export(self.out / "m.safetensors", "--heads=raw", code=64))
        for flag in ("--label_map=a.pbtxt", "--data_dir=a"):
            self.assertIn("side file of --heads=raw", self.export(good, flag, code=64))
        self.assertIn("a.pbtxt", self.export(good, "--heads=raw", "--label_map=a.pbtxt", code=66))
        self.assertIn("--output is missing", self.export("", code=64))
        self.assertIn("there are those of steps 6", self.export(good, "--step=5", code=66))
        self.assertIn("elsewhere: no pipeline.config there; expected the --train_dir of a ps_server",
                      self.export(good, run="elsewhere", code=66))
        self.assertIn("no moving averages", self.export(good, "--weights=ema", code=65))
        self.assertIn("model.onnx is neither a folder", self.export(good / "model.onnx", code=65))
        (self.out / "folder.onnx").mkdir()
        self.assertIn("folder.onnx", self.export(self.out / "folder.onnx", code=65))
        self.assertIn("folder.onnx", self.export(self.out / "folder.onnx", "--heads=raw", code=65))
        (self.out / "model.heads.json").mkdir()
        self.assertIn("model.heads.json", self.export(good, "--heads=raw", code=65))
        (self.out / "model.heads.json").rmdir()
        config = self.folder / "run" / "pipeline.config"
        text = config.read_text()
        config.write_text(re.sub(r"num_channels: 1", "num_channels: 1 hidden_units: 7", text, count=1))
        error = self.export(good, code=65)
        self.assertIn("lacks variable MobilenetV2/Logits/Conv2d_1b_1x1/weights", error)
        self.assertIn('did you mean "MobilenetV2/Logits/Conv2d_1c_1x1/weights"?', error)
        self.assertEqual(good.read_text(), "what was there before")
        self.assertEqual(sorted(os.listdir(self.out)), ["folder.onnx", "model.onnx"])
        config.write_text(text)
        self.assertEqual(self.export(good, "--step=6")["step"], 6)
        self.assertEqual(self.export(self.folder / "new" / "folder" / "model.onnx")["step"], 6)
        self.check_onnx(good)
        # A file with the name of the model's side file that the exporter has not written stays.
        contents = good.read_bytes()
        notes = self.out / "model.heads.json"
        notes.write_text('{"heads": 4}')
        self.assertIn(str(notes), self.export(good, "--heads=raw", code=65))
        self.assertEqual(good.read_bytes(), contents)
        good.unlink()
        self.export(good)
        self.assertEqual(good.read_bytes(), contents)
        self.assertEqual(notes.read_text(), '{"heads": 4}')
        self.assertEqual(sorted(os.listdir(self.out)), ["folder.onnx", "model.heads.json", "model.onnx"])


if __name__ == "__main__":
    main()
