"""A clone that trains a small convolutional network on made images, with PyTorch.

arguments: [--norm] [--dropout] [--workers=N] [--double] [--pause=SECONDS] [--weights=FILE]
"""
import argparse
import time

import torch

import pushpull
import pushpull.torch


class Images(torch.utils.data.Dataset):
    """Noise with a bright square whose quadrant is the class. Elements are shifted at random."""

    def __len__(self):
        return 300

    def __getitem__(self, index):
        label = index % 4
        generator = torch.Generator().manual_seed(index)
        image = torch.randn(1, 12, 12, generator=generator) * 0.3
        row, column = 6 * (label // 2), 6 * (label % 2)
        image[0, row:row + 6, column:column + 6] += 1
        return torch.roll(image, int(torch.randint(0, 2, ())), 2), label


def make_network(norm=False, dropout=False):
    torch.manual_seed(5)
    layers = [torch.nn.Conv2d(1, 8, 3, padding=1, bias=not norm)]
    layers += [torch.nn.BatchNorm2d(8)] if norm else []
    layers += [torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(8, 8, 3), torch.nn.ReLU(), torch.nn.Flatten()]
    layers += [torch.nn.Dropout(0.5)] if dropout else []
    return torch.nn.Sequential(*layers, torch.nn.Linear(8 * 16, 4))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--norm", action="store_true")
    parser.add_argument("--dropout", action="store_true")
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--weights", default="")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    model = make_network(flags.norm, flags.dropout)
    if flags.double:
        model.double()
    ps = pushpull.connect()
    trainer = pushpull.torch.Trainer(ps, model, options=lambda name, parameter: {
        "weight_decay": 1e-4 if parameter.dim() > 1 else 0.0})
    for batch in trainer.batches(Images(), num_workers=flags.workers):
        x = batch.x.double() if flags.double else batch.x
        logits = model(x)
        loss = torch.nn.functional.cross_entropy(logits, batch.y)
        time.sleep(flags.pause)
        accuracy = (logits.argmax(1) == batch.y).float().mean()
        trainer.step(loss, samples=len(batch), metrics={"accuracy": accuracy})
    if flags.weights and ps.clone == 0:
        torch.save(model.state_dict(), flags.weights)


if __name__ == "__main__":
    main()
