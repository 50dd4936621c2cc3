#!/usr/bin/env python3
"""Compares an export after a warm start with torchvision: python3 torchvision_warm_start_check.py BIN_DIR

A VGG-11 of a quarter of the width with random weights is saved as safetensors, taken by ps_server, exported and run in
onnxruntime. Its logits have to be those of torchvision in double precision, where torchvision pads with grey. Needs
torch, torchvision, safetensors and onnxruntime.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy
import onnxruntime
import safetensors.torch
import torch
import torch.nn.functional as functional

from classifiers_torchvision import narrow_vgg_11

SIZE = 64
# The learning rate leaves the weights as they are.
CONFIG = """
model {{ classifier {{
  num_classes: 10 image_resizer {{ fixed_shape_resizer {{ height: {size} width: {size} }} }}
  feature_extractor {{ type: "vgg_a" depth_multiplier: 0.25 }}
}} }}
train_config {{
  batch_size: 1 sync_replicas: true num_steps: 1 fine_tune_checkpoint: "{weights}"
  optimizer {{
    momentum_optimizer {{ learning_rate {{ constant_learning_rate {{ learning_rate: 1e-30 }} }} }}
    use_moving_average: false
  }}
}}
train_input_reader {{ synthetic_input_reader {{ num_examples: 1 height: {size} width: {size} num_classes: 10 }} }}
eval_input_reader {{ synthetic_input_reader {{ num_examples: 1 height: {size} width: {size} num_classes: 10 }} }}
"""


def export(bin_dir, folder, weights):
    """Returns the path of the network that takes these weights."""
    config = folder / "pipeline.config"
    config.write_text(CONFIG.format(size=SIZE, weights=weights))
    address = f"unix:{folder}/ps"
    with subprocess.Popen([bin_dir / "ps_server", f"--listen={address}", f"--pipeline_config_path={config}",
                           f"--train_dir={folder / 'run'}"]) as server:
        subprocess.run([bin_dir / "worker", f"--ps={address}", "--num_clones=1", "--device=cpu"], check=True, timeout=120)
        assert server.wait(timeout=60) == 0
    network = folder / "network.onnx"
    subprocess.run([bin_dir / "exporter", f"--checkpoint_dir={folder / 'run'}", f"--output={network}"], check=True)
    return network


def torchvision_logits(model, images):
    """Returns the logits of uint8 images [N, H, W, 3] with grey beyond their borders."""
    mean, deviation = (torch.tensor(values, dtype=torch.float64).reshape(1, 3, 1, 1)
                       for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    pixels = functional.pad(images.permute(0, 3, 1, 2).double() / 255, (1, 1, 1, 1), value=0.5)
    model.features[0].padding = (0, 0)
    with torch.no_grad():
        return model.double().eval()((pixels - mean) / deviation).numpy()


def main():
    torch.manual_seed(1)
    model = narrow_vgg_11(SIZE // 32)
    for name, values in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(values, std=0.1)
    images = torch.randint(0, 256, (4, SIZE, SIZE, 3), dtype=torch.uint8)
    with tempfile.TemporaryDirectory() as name:
        weights = pathlib.Path(name) / "vgg11.safetensors"
        safetensors.torch.save_file(model.state_dict(), weights)
        session = onnxruntime.InferenceSession(export(pathlib.Path(sys.argv[1]), pathlib.Path(name), weights))
        found = session.run(["logits"], {"input": images.numpy()})[0]
    expected = torchvision_logits(model, images)
    difference = numpy.abs(found - expected).max() / numpy.abs(expected).max()
    print(f"largest difference, relative to the largest logit: {difference:.2g}")
    sys.exit(int(difference > 1e-5))


if __name__ == "__main__":
    main()
