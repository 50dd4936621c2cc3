"""A clone that uses pushpull.ParameterServer without a trainer: 0.1 s per batch.

arguments: [NUMBER]  its first process sleeps after this number of batches until it is killed
"""
import os
import sys
import time

import numpy

import pushpull

ps = pushpull.connect()
ps.start([pushpull.Variable("a", (3,))], [numpy.ones(3, numpy.float32)], num_samples=40)
batches = 0
while (batch := ps.next_batch()) is not None:
    batch.gradient[:] = 0.1
    time.sleep(0.1)
    ps.finish(samples=8, loss=1.0)
    batches += 1
    if sys.argv[1:] == [str(batches)] and os.environ["PUSHPULL_PROCESS_NUMBER"] == "1":
        time.sleep(1000)
