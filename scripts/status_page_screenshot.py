#!/usr/bin/env python3
"""Trains on drawn shapes with three clones and takes a screenshot of the status page during training.

usage: status_page_screenshot.py [--output=deploy/images/status_page.png] [--step=1500] [--size=1240x1277] [--dark]
                                 [--bin=build/bin]

Needs Debian's package `chromium`. Takes about two minutes on two cores.
"""
import argparse
import json
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import headless_chromium

ROOT = pathlib.Path(__file__).resolve().parents[1]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_step(url, step, processes):
    """Waits until the server at `url` has reached the step. Exits the program if one of the processes ends before."""
    while True:
        for process in processes:
            if process.poll() is not None:
                sys.exit(f"{process.args[0]} ended with {process.returncode} before step {step}")
        try:
            with urllib.request.urlopen(url + "status.json", timeout=10) as reply:
                if json.load(reply)["step"] >= step:
                    return
        except OSError:
            pass
        time.sleep(0.3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--output", default=str(ROOT / "deploy/images/status_page.png"))
    parser.add_argument("--step", type=int, default=1500)
    parser.add_argument("--size", default="1240x1277")
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--bin", default=str(ROOT / "build/bin"))
    arguments = parser.parse_args()
    if headless_chromium.find() is None:
        sys.exit("no chromium here (apt-get install chromium)")
    size = tuple(int(part) for part in arguments.size.split("x"))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pushpull-"))
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    processes = []
    try:
        with open(folder / "log", "wb") as log:
            for name, *flags in (
                    ("ps_server", f"--pipeline_config_path={ROOT / 'deploy/pipelines/mobilenet_v2_synthetic.config'}",
                     f"--train_dir={folder / 'train'}", f"--listen=unix:{folder / 'socket'}", f"--state_dir={folder / 'state'}",
                     f"--metrics_port={port}"),
                    ("worker", f"--ps=unix:{folder / 'socket'}", "--num_clones=3")):
                processes.append(subprocess.Popen([str(pathlib.Path(arguments.bin) / name), *flags], stdout=log, stderr=log))
        await_step(url, arguments.step, processes)
        headless_chromium.screenshot(url, arguments.output, 8000, size, arguments.dark)
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{arguments.output}: {pathlib.Path(arguments.output).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
