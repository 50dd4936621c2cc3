"""A clone that trains one array with gradients of zero, and says which batches it has pushed.

arguments: ADDRESS CLONE NUM_CLONES
"""
import signal
import sys

import numpy

import pushpull


def main():
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    address, clone, num_clones = sys.argv[1:]
    ps = pushpull.connect(address, clone=int(clone), num_clones=int(num_clones))
    trainer = pushpull.numpy.Trainer(ps, {"a": numpy.ones(3, numpy.float32)}, show_progress=False)
    for batch in trainer.batches(40):
        trainer.push({}, samples=len(batch), loss=1.0)
        print(f"pushed batch {batch.position}", flush=True)


if __name__ == "__main__":
    main()
