#!/usr/bin/env python3
"""A clone of ps_round that uses the Python package, as a training program does. ps_round starts it.

It declares one variable of --elements elements, and computes nothing: it says at once that its gradient is final. It
prints one line per timed round: milliseconds from the end of its batch until the server has answered, which the package
does not tell, so that they are 0; milliseconds from one batch to the next; and milliseconds of processor time.
"""
import argparse
import pathlib
import sys
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "python"))
import pushpull  # noqa: E402


def main():
    """Makes all rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clone_of", required=True, help="address of the server")
    parser.add_argument("--clone_index", type=int, required=True)
    parser.add_argument("--num_clones", type=int, required=True)
    parser.add_argument("--shared_memory", choices=("true", "false"), required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--warmup_rounds", type=int, required=True)
    parser.add_argument("--elements", type=int, required=True)
    flags = parser.parse_args()
    ps = pushpull.connect(flags.clone_of, clone=flags.clone_index, num_clones=flags.num_clones,
                          shared_memory=flags.shared_memory == "true")
    variables = [pushpull.Variable("weights", (flags.elements,), weight_decay=4e-5)]
    ps.start(variables, [numpy.zeros(flags.elements, numpy.float32)], num_samples=96)
    times = []
    for _ in range(flags.warmup_rounds + flags.rounds + 1):
        batch = ps.next_batch()
        times.append((time.monotonic(), time.process_time()))
        if len(times) == 1:
            batch.gradient[:] = 1e-6
        ps.advance(0)
        ps.finish(samples=96 // flags.num_clones, loss=1.0)
    for (begin, cpu_begin), (end, cpu_end) in list(zip(times, times[1:]))[flags.warmup_rounds:]:
        print(f"0 {1e3 * (end - begin):.4f} {1e3 * (cpu_end - cpu_begin):.4f}", flush=True)


if __name__ == "__main__":
    main()
