#!/usr/bin/env python3
"""Rounds of a PyTorch model through ps_server, beside DistributedDataParallel over gloo on the same machine.

usage: scripts/bench/torch_round.py [--megabytes=100,1000] [--clones=2] [--rounds=20]
  run it with a Python that has PyTorch, after `scripts/test.sh` or a build of ps_server and pushpull_client_shared

The model is a list of parameters of 4 MB each, and computing its gradient takes about as long as writing it once, so that
nearly all of a round is exchange. Both sides average the gradients of the clones and apply SGD with momentum: ps_server
once for all, DistributedDataParallel in each process. The four ways take turns, twice; the table has medians.
  overlap      chunks or buckets are sent while the backward pass computes others
  no overlap   all is sent after the backward pass
The last column is the time that the hooks of pushpull.torch.Trainer take in a step: copying each gradient into the flat
vector, and saying that it is final.
"""
import argparse
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
WARMUP = 3
CONFIG = """
model {{ external {{ name: "torch_round" }} }}
train_config {{
  batch_size: {clones}
  num_steps: {steps}
  max_to_keep: 1
  save_checkpoints_secs: 100000
  optimizer {{
    momentum_optimizer {{
      learning_rate {{ constant_learning_rate {{ learning_rate: 0.001 }} }}
      momentum_optimizer_value: 0.9
    }}
    use_moving_average: false
  }}
}}
"""


class Parameters(torch.nn.Module):
    """Parameters of 4 MB each, and a loss whose gradient takes one pass over them."""

    def __init__(self, megabytes):
        super().__init__()
        count = max(1, megabytes // 4)
        self.parts = torch.nn.ParameterList(torch.full((1000, 1000), 0.01) for _ in range(count))

    def forward(self, scale):
        """Returns a scalar that depends on all parameters."""
        return sum((part * scale).sum() for part in self.parts)


def pushpull_rounds(flags):
    """Prints the milliseconds of each round of one clone, and then those that the hooks took in a step."""
    import pushpull  # noqa: F401
    import pushpull.torch
    model = Parameters(flags.megabytes)
    ps = pushpull.connect(flags.address, clone=flags.rank, num_clones=flags.clones)
    trainer = pushpull.torch.Trainer(ps, model, show_progress=False)
    in_hooks = 0.0
    take = trainer._on_gradient

    def timed(index, parameter):
        nonlocal in_hooks
        begin = time.monotonic()
        take(index, parameter)
        in_hooks += time.monotonic() - begin

    trainer._on_gradient = timed
    if flags.mode == "pushpull, no overlap":
        ps.advance = lambda first_final: None
    times = []
    for batch in trainer.batches(range(1000)):
        times.append(time.monotonic())
        trainer.step(model(1e-3), samples=len(batch))
    for begin, end in list(zip(times, times[1:]))[WARMUP:]:
        print(1e3 * (end - begin))
    print(1e3 * in_hooks / len(times))


def ddp_rounds(flags):
    """Prints the milliseconds of each round of one process."""
    torch.distributed.init_process_group("gloo", init_method=f"tcp://{flags.address}", rank=flags.rank,
                                         world_size=flags.clones)
    model = Parameters(flags.megabytes)
    overlap = flags.mode == "DDP"
    parallel = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True) if overlap else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    times = []
    for _ in range(flags.rounds + WARMUP + 1):
        times.append(time.monotonic())
        optimizer.zero_grad()
        parallel(1e-3).backward()
        if not overlap:
            for part in model.parameters():
                torch.distributed.all_reduce(part.grad)
                part.grad /= flags.clones
        optimizer.step()
    for begin, end in list(zip(times, times[1:]))[WARMUP:]:
        print(1e3 * (end - begin))
    print(0.0)


def free_address():
    """Returns an address of this machine whose port is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def measure(mode, flags, megabytes):
    """Runs all processes of one way. Returns the median milliseconds of a round and those of the hooks."""
    with tempfile.TemporaryDirectory() as folder:
        address, server = free_address(), None
        if mode.startswith("pushpull"):
            config = pathlib.Path(folder) / "pipeline.config"
            config.write_text(CONFIG.format(clones=flags.clones, steps=flags.rounds + WARMUP + 1))
            with open(f"{folder}/server.log", "w") as log:
                server = subprocess.Popen(
                    [flags.bin_dir / "ps_server", f"--pipeline_config_path={config}", f"--train_dir={folder}/train",
                     f"--listen={address}", f"--num_replicas={flags.clones}"], stdout=log, stderr=log)
        try:
            clones = [subprocess.Popen(
                [sys.executable, __file__, f"--mode={mode}", f"--rank={rank}", f"--address={address}",
                 f"--megabytes={megabytes}", f"--clones={flags.clones}", f"--rounds={flags.rounds}"],
                stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
                for rank in range(flags.clones)]
            outputs = [clone.communicate()[0] for clone in clones]
            if any(clone.returncode for clone in clones):
                raise SystemExit(f"torch_round: a clone of {mode} failed; see above")
        finally:
            if server is not None:
                server.terminate()
                server.wait()
    lines = [[float(line) for line in output.split()] for output in outputs]
    return statistics.median(lines[0][:-1]), statistics.mean(line[-1] for line in lines)


def main():
    """Prints the table, or runs one clone."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", default="100,1000", help="sizes of the model")
    parser.add_argument("--clones", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--bin_dir", type=pathlib.Path, default=ROOT / "build" / "bin")
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--address", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.mode:
        flags.megabytes = int(flags.megabytes)
        torch.set_num_threads(1)
        (pushpull_rounds if flags.mode.startswith("pushpull") else ddp_rounds)(flags)
        return
    print(f"PyTorch {torch.__version__}, {flags.clones} clones of one thread each\n")
    print("| model MB | way | ms per round | GB/s of gradients and weights per clone | DDP / this | ms in hooks |")
    print("|---|---|---|---|---|---|")
    modes = ("DDP", "DDP, no overlap", "pushpull", "pushpull, no overlap")
    for megabytes in map(int, flags.megabytes.split(",")):
        found = {mode: [] for mode in modes}
        for mode in modes * 2:
            found[mode].append(measure(mode, flags, megabytes))
        rounds = {mode: statistics.median(ms for ms, _ in found[mode]) for mode in modes}
        for mode in modes:
            hooks = statistics.median(hook for _, hook in found[mode])
            print(f"| {megabytes} | {mode} | {rounds[mode]:.1f} | {2 * megabytes / rounds[mode]:.2f} | "
                  f"{rounds['DDP'] / rounds[mode]:.2f} | {hooks:.1f} |", flush=True)


if __name__ == "__main__":
    main()
