"""A clone whose first batch fails in the middle, as an exception in the backward pass does, and that ends a while later.

arguments: ADDRESS
"""
import sys
import time

import numpy

import pushpull


def main():
    ps = pushpull.connect(sys.argv[1])
    trainer = pushpull.numpy.Trainer(ps, {"a": numpy.ones(3, numpy.float32)}, show_progress=False)
    for _ in trainer.batches(40):
        ps.give_up("the backward pass failed")
        time.sleep(0.5)  # what the program has left to do
        raise ZeroDivisionError("in the backward pass")


if __name__ == "__main__":
    main()
