"""Configs of small models for onnx_export_check.py: one for each type of common/config/model_types.h, and variants."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

PADDED = "_padded"  # suffix of a kind that uses keep_aspect_ratio_resizer
CLASSES = {"detector": 3, "classifier": 4}
HYPERPARAMS = ("conv_hyperparams { activation: RELU_6 regularizer { l2_regularizer { weight: 0.00004 } } "
               "initializer { random_normal_initializer { stddev: 0.05 } } "
               "batch_norm { decay: 0.9 scale: true epsilon: 0.001 } }")
MULTISCALE_ANCHORS = ("multiscale_anchor_generator { min_level: 3 max_level: 7 anchor_scale: 3 scales_per_octave: 2 "
                      "aspect_ratios: [1.0, 2.0, 0.5] }")


def types_of(table):
    """Returns the names in a table of model_types.h."""
    text = (ROOT / "common/config/model_types.h").read_text()
    rows = re.search(rf"#define {table}\(ROW\)((?:.*\\\n)+.*\n)", text)[1]
    return re.findall(r'ROW\("(\w+)"', rows)


CLASSIFIERS = types_of("PUSHPULL_CLASSIFIER_TYPES")
DETECTORS = types_of("PUSHPULL_SSD_TYPES")
# More kinds than types: other heads or layers on the same backbone.
VARIANTS = {"ssdlite_mobilenet_v2": "ssd_mobilenet_v2", "ssd_mobilenet_v2_fpnlite": "ssd_mobilenet_v2_fpn",
            "ssd_mobilenet_v1_explicit_padding": "ssd_mobilenet_v1"}
KINDS = DETECTORS + list(VARIANTS) + ["ssd_mobilenet_v2" + PADDED] + CLASSIFIERS + ["mobilenet_v2" + PADDED]


def replace(text, *pairs):
    """Applies (pattern, replacement) pairs to a config. Raises ValueError if a pattern does not occur."""
    for pattern, replacement in pairs:
        text, count = re.subn(pattern, replacement, text)
        if count == 0:
            raise ValueError(f"the config has no {pattern}")
    return text


def is_detector(kind):
    base = kind.removesuffix(PADDED)
    return base in DETECTORS or base in VARIANTS


def predictor(depth, layers, kernel, more=""):
    return (f"weight_shared_convolutional_box_predictor {{ depth: {depth} num_layers_before_predictor: {layers} "
            f"kernel_size: {kernel} {more} {HYPERPARAMS} }}")


def changes_of(kind, model):
    """Returns the (pattern, replacement) pairs that make the config of MobileNetV2's SSD that of another kind."""
    head = r"convolutional_box_predictor \{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\}"
    anchors = r"ssd_anchor_generator \{[^}]*\}"
    changes = [(r'"ssd_mobilenet_v2"', f'"{model}"')]
    if model.endswith("_fpn"):
        lite = kind.endswith("_fpnlite")
        more = "share_prediction_tower: true use_depthwise: true" if lite else "class_prediction_bias_init: -2"
        changes += [(head, predictor(32, 2, 3, more)), (anchors, MULTISCALE_ANCHORS), (r"\b96\b", "128"),
                    (r"use_depthwise: true\n", f"use_depthwise: {str(lite).lower()} fpn {{ additional_layer_depth: 32 }}\n")]
    elif model.endswith("_mnasfpn"):
        changes += [(head, predictor(32, 2, 3, "share_prediction_tower: true use_depthwise: true")),
                    (anchors, MULTISCALE_ANCHORS.replace("max_level: 7", "max_level: 6")), (r"\b96\b", "128"),
                    (r"use_depthwise: true\n", "fpn { max_level: 6 additional_layer_depth: 48 }\n")]
    elif model.endswith("_ppn"):
        changes += [(head, predictor(32, 1, 1, "share_prediction_tower: true"))]
    if model.startswith("ssd_resnet"):
        changes += [(r"depth_multiplier: 0.35", "depth_multiplier: 0.125")]
    if model.startswith("ssd_mobiledet"):
        changes += [(r"override_base_feature_extractor_hyperparams: true", "")]
    if model.startswith("embedded"):
        changes += [(r"\b96\b", "256"), (r"num_layers: 6", "num_layers: 5")]
    if model in ("ssd_mobilenet_v1", "embedded_ssd_mobilenet_v1", "ssd_mobilenet_v1_ppn"):
        changes += [(r"use_depthwise: true", "use_depthwise: false")]
    if kind == "ssdlite_mobilenet_v2":
        changes += [(r"kernel_size: 3", "kernel_size: 3 use_depthwise: true")]
    if kind.endswith("_explicit_padding"):
        changes += [(r"use_depthwise: false", "use_depthwise: false use_explicit_padding: true")]
    return changes


def detector_config(kind, steps):
    """Returns the config of a smaller digits detector on drawn shapes, with moving averages."""
    text = (ROOT / "deploy/pipelines/ssd_mobilenet_v2_digits.config").read_text()
    text = replace(text, (r"\n *digits \{[^}]*\}", ""), (r"\b160\b", "96"),
                   (r"num_classes: 10", f"num_classes: {CLASSES['detector']}"),
                   (r"max_objects: \d+", "max_objects: 3"), (r"(num_steps|total_steps): \d+", rf"\1: {steps}"),
                   (r"warmup_steps: \d+", f"warmup_steps: {min(20, steps // 2)}"), (r"batch_size: 12", "batch_size: 8"),
                   (r"decay: 0.99", "decay: 0.9"), (r"save_checkpoints_secs: \d+", "save_checkpoints_secs: 1000"),
                   (r"use_moving_average: false", "use_moving_average: true moving_average_decay: 0.95"))
    return replace(text, *changes_of(kind, VARIANTS.get(kind, kind)))


def classifier_config(kind, steps):
    """Returns the config of a small classifier of drawn shapes, with moving averages."""
    from harness import CONFIG, SYNTHETIC  # reads PUSHPULL_BIN_DIR
    text = CONFIG.format(width=0.125 if kind.startswith("resnet") else 0.35, batch=16, sync="true", steps=steps, train="",
                         model="", eval_reader="", reader="",
                         optimizer="adam_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.002 } } }")
    shapes = SYNTHETIC.format(n=2000, seed=1).replace("num_channels: 1", "num_channels: 3")
    if not kind.startswith("mobilenet_v2"):  # their activations are their own
        text = replace(text, (r"activation: RELU_6", ""))
    return replace(text, (r'type: "mobilenet_v2"', f'type: "{kind}"'), (r"num_channels: 1", "num_channels: 3"),
                   (r"train_input_reader \{", "train_input_reader { " + shapes),
                   (r"eval_input_reader \{ shuffle: false", 'eval_input_reader { shuffle: false '
                    'image_folder_input_reader { path: "images" }'),
                   (r"use_moving_average: false", "use_moving_average: true moving_average_decay: 0.95"))


def config_of(kind, steps):
    base = kind.removesuffix(PADDED)
    text = detector_config(base, steps) if is_detector(kind) else classifier_config(base, steps)
    if base == kind:
        return text
    # Some images are limited by max_dimension and some by min_dimension, and the padding is below or on the right.
    return replace(text, (r"fixed_shape_resizer \{ height: (\d+) width: \d+ \}",
                          lambda match: "keep_aspect_ratio_resizer { pad_to_max_dimension: true per_channel_pad_value: 124 "
                          f"per_channel_pad_value: 30 per_channel_pad_value: 210 max_dimension: {match[1]} "
                          f"min_dimension: {int(match[1]) * 2 // 3} }}"))
