"""Trains torchvision's Faster R-CNN with ResNet-101 and feature pyramid on blood cells (BCCD), from random weights.

    export OMP_WAIT_POLICY=passive
    pushpull worker --pipeline_config_path=faster_rcnn.config --train_dir=/tmp/bccd --num_clones=2 \\
        faster_rcnn_torch.py --data_dir=DIR
    python3 faster_rcnn_torch.py --data_dir=DIR --evaluate=/tmp/bccd   # mAP of each new checkpoint, until the end

DIR has a data set in Pascal VOC's layout: Annotations, ImageSets/Main and JPEGImages. The optimizer, its schedule and
the clipping are in faster_rcnn.config. Batch norm is trained: frozen statistics of random weights mean nothing.
Each clone normalises its own images, and the server takes the mean of the clones' statistics.
"""
import argparse
import pathlib
import xml.etree.ElementTree

import numpy
import PIL.Image
import torch
import torchvision
from torchvision.models.detection import FasterRCNN, backbone_utils, faster_rcnn
from torchvision.models.detection.anchor_utils import AnchorGenerator

import pushpull
import pushpull.torch
from voc_metrics import VocMetrics

CLASSES = ("background", "RBC", "WBC", "Platelets")


def read_annotation(path):
    """Returns the boxes [n, 4] with extent (xmin, ymin, xmax, ymax), their labels and which are difficult."""
    boxes, labels, difficult = [], [], []
    for item in xml.etree.ElementTree.parse(path).iter("object"):
        box = [float(item.findtext(f"bndbox/{side}")) for side in ("xmin", "ymin", "xmax", "ymax")]
        if box[0] < box[2] and box[1] < box[3]:  # BCCD has one box without width
            boxes.append(box)
            labels.append(CLASSES.index(item.findtext("name")))
            difficult.append(item.findtext("difficult") == "1")
    return numpy.array(boxes, numpy.float32).reshape(-1, 4), labels, difficult


class Cells(torch.utils.data.Dataset):
    """Images `height` pixels high [3, height, width], from 0 to 1, and their boxes; mirrored by chance if `flip`.

    The trainer seeds PyTorch's generator for each example, so the mirroring depends on seed, step and example only.
    """

    def __init__(self, folder, split, height, flip=False):
        folder = pathlib.Path(folder)
        self.flip = flip
        self.examples = []
        for name in (folder / "ImageSets" / "Main" / f"{split}.txt").read_text().split():
            with PIL.Image.open(folder / "JPEGImages" / f"{name}.jpg") as image:
                scale = height / image.height
                image = image.convert("RGB").resize((round(image.width * scale), height), PIL.Image.BILINEAR)
            boxes, labels, difficult = read_annotation(folder / "Annotations" / f"{name}.xml")
            self.examples.append((torch.from_numpy(numpy.asarray(image).copy()).permute(2, 0, 1),
                                  {"boxes": torch.from_numpy(boxes * scale), "labels": torch.tensor(labels).long(),
                                   "difficult": torch.tensor(difficult).bool()}))

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, index):
        image, target = self.examples[index]
        image, boxes = image / 255.0, target["boxes"].clone()
        for axis, size in ((0, image.shape[2]), (1, image.shape[1])):
            if self.flip and torch.rand(()) < 0.5:
                image = image.flip(2 - axis)
                boxes[:, [axis, axis + 2]] = size - boxes[:, [axis + 2, axis]]
        return image, {**target, "boxes": boxes}


def collate(examples):
    """Returns the images and the targets as two lists, because every image has another number of boxes."""
    return tuple(map(list, zip(*examples)))


def make_model(backbone="resnet101", height=160):
    """Returns the network for images of about `height` pixels: small anchors, and few proposals for a CPU."""
    body = getattr(torchvision.models, backbone)(weights=None, zero_init_residual=True)
    channels = [layer[-1].bn2.num_features if backbone in ("resnet18", "resnet34") else layer[-1].bn3.num_features
                for layer in (body.layer1, body.layer2, body.layer3, body.layer4)]
    pyramid = backbone_utils.BackboneWithFPN(body, {f"layer{i}": str(i - 1) for i in (1, 2, 3, 4)}, channels, 128)
    pyramid.fpn.extra_blocks = None
    sides = [(0.075 * height * 2 ** level, 0.105 * height * 2 ** level) for level in range(4)]
    pool = torchvision.ops.MultiScaleRoIAlign(["0", "1", "2", "3"], output_size=7, sampling_ratio=2,
                                              canonical_scale=64)
    return FasterRCNN(
        pyramid, min_size=height, max_size=2 * height, image_mean=[0.7, 0.65, 0.65], image_std=[0.2, 0.2, 0.2],
        rpn_anchor_generator=AnchorGenerator(tuple(sides), ((0.7, 1.0, 1.4),) * 4),
        rpn_pre_nms_top_n_train=300, rpn_post_nms_top_n_train=200, rpn_pre_nms_top_n_test=300,
        rpn_post_nms_top_n_test=200, rpn_batch_size_per_image=128, box_batch_size_per_image=64,
        box_score_thresh=0.02, box_roi_pool=pool, box_head=faster_rcnn.TwoMLPHead(128 * 7 * 7, 512),
        box_predictor=faster_rcnn.FastRCNNPredictor(512, len(CLASSES)))


@torch.no_grad()
def evaluate(model, cells):
    """Returns the mAP, and the AP of each class by its name."""
    model.eval()
    metrics = VocMetrics()
    for image, target in cells:
        metrics.add_image(target, model([image])[0])
    return metrics.mean(), {CLASSES[label]: value for label, value in metrics.by_class().items()}


def evaluate_checkpoints(flags):
    """Prints the mAP of each checkpoint until training has ended."""
    model = make_model(flags.backbone, flags.height)
    cells = Cells(flags.data_dir, flags.split, flags.height)
    for found in pushpull.watch(flags.evaluate):
        step = pushpull.torch.load_state_dict(model, flags.evaluate, found.step)
        mean, by_class = evaluate(model, cells)
        print(f"step {step}: mAP@0.5 {mean:.4f} on {len(cells)} images of {flags.split} ("
              + ", ".join(f"{name} {value:.4f}" for name, value in by_class.items()) + ")", flush=True)


def train(flags):
    """Trains as one clone until the job ends."""
    model = make_model(flags.backbone, flags.height).to(memory_format=torch.channels_last)
    trainer = pushpull.torch.Trainer(pushpull.connect(model_name="faster_rcnn"), model)
    for batch in trainer.batches(Cells(flags.data_dir, flags.train_split, flags.height, flip=True), collate):
        with torch.autocast("cpu", torch.bfloat16, enabled=flags.bf16):
            losses = model(batch.x, batch.y)  # each is the mean over the images
        trainer.step(sum(losses.values()), samples=len(batch), metrics=losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", required=True)
    parser.add_argument("--backbone", default="resnet101", help="one of torchvision's ResNets")
    parser.add_argument("--height", type=int, default=160, help="of the images, in pixels")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16, for a CPU with AVX512-BF16 or AMX")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of each clone")
    parser.add_argument("--train_split", default="trainval")
    parser.add_argument("--evaluate", metavar="TRAIN_DIR", help="evaluate this job's checkpoints instead of training")
    parser.add_argument("--split", default="test", help="the images to evaluate on")
    flags = parser.parse_args()
    torch.set_num_threads(flags.threads)
    if flags.evaluate:
        evaluate_checkpoints(flags)
    else:
        train(flags)


if __name__ == "__main__":
    main()
