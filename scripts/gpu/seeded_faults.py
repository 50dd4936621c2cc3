#!/usr/bin/env python3
"""Shows which faults of the CUDA backend its emulation finds: breaks the real sources, one fault at a time.

usage: scripts/gpu/seeded_faults.py [--build=DIR] [--fit] [FAULT...]
  --build=DIR  a configured Ninja build folder without sanitizers (default build)
  --fit        only say whether each fault can still be put into the sources, which is a test of every build
  FAULT...     names of the list below; default: all

The sources stay as they are. A fault is put into a copy of one file; the files that contain it are compiled with the
build's own commands and linked into two copies of the test program, in front of the libraries. One copy has all
checks of the emulation. In the other one ChecksAreOn returns false: it does not look for races in shared memory and for
accesses to freed memory, and streams do not run in an order drawn by chance. Both run the tests of the part. It takes
some minutes. Exit code 0: all faults were found and the sources as they are pass; 1: not so; 64: bad flags.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 300  # for the tests of one fault

# `before` becomes `after` in `file`, where it must occur once; `compiled` are the sources to compile again.
Fault = collections.namedtuple("Fault", "name file before after compiled program tests")

KERNELS, MODEL = "cuda_emulated_test", "model_test"
# Linked in front of kernels/cuda/emulation/checks.cc.
WITHOUT_CHECKS = """#include "kernels/cuda/emulation/checks.h"
bool pushpull::emulation::ChecksAreOn() { return false; }
"""
FAULTS = [
    Fault("wrong_mask", "kernels/cuda/block_sum.cuh",
          "kAllLanes = 0xffffffffu", "kAllLanes = 0x7fffffffu",
          ["kernels/cuda/softmax.cu"], KERNELS, "SoftmaxTest*"),
    Fault("missing_syncwarp", "kernels/cuda/softmax.cu",
          "    if (threadIdx.x % kWarpLanes == 0) range.losses[sample - range.first] = loss;\n",
          "    if (threadIdx.x == 0) losses[0] = loss;\n"
          "    __shfl_sync(0xffffffffu, 0, 0);\n"
          "    if (threadIdx.x == 1) range.losses[sample - range.first] = losses[0];\n"
          "    if (threadIdx.x % kWarpLanes == 0 && threadIdx.x > 0) range.losses[sample - range.first] = loss;\n",
          ["kernels/cuda/softmax.cu"], KERNELS, "SoftmaxTest*"),
    Fault("missing_syncthreads_in_a_product", "kernels/cuda/convolution_product.cuh",
          "    if constexpr (!Memory::kStagesApart) __syncthreads();  // the tiles have been multiplied\n", "",
          ["kernels/cuda/convolution_forward.cu"], KERNELS, "DenseTiles/CudaConvolutionOnTwo*"),
    Fault("missing_syncwarp_before_staging", "kernels/cuda/convolution_epilogue.cuh",
          "      __syncwarp();  // the warp has read what it staged before\n", "",
          ["kernels/cuda/convolution_forward.cu"], KERNELS, "DenseTiles/CudaConvolutionOnTwo*"),
    Fault("missing_syncwarp_after_staging", "kernels/cuda/convolution_epilogue.cuh",
          "      math.Stage(part, phase, staged);\n      __syncwarp();\n", "      math.Stage(part, phase, staged);\n",
          ["kernels/cuda/convolution_forward.cu"], KERNELS, "DenseTiles/CudaConvolutionOnTwo*"),
    Fault("missing_syncthreads_after_a_fused_tile", "kernels/cuda/pointwise_backward.cu",
          "    __syncthreads();  // both tiles have been read\n", "",
          ["kernels/cuda/pointwise_backward.cu"], KERNELS, "FusedBackward/*OnTwo*"),
    Fault("missing_wait_for_copies", "kernels/cuda/convolution_product.cuh",
          "WaitForCopies<1>();", "WaitForCopies<2>();",
          ["kernels/cuda/convolution_forward.cu"], KERNELS, "DenseTiles/CudaConvolutionOnTwo*"),
    Fault("missing_syncthreads_after_copies", "kernels/cuda/convolution_product.cuh",
          "WaitForCopies<1>();\n    __syncthreads();", "WaitForCopies<1>();",
          ["kernels/cuda/convolution_forward.cu"], KERNELS, "DenseTiles/CudaConvolutionOnTwo*"),
    Fault("missing_wait_for_a_ring", "kernels/cuda/raw_ring.cuh",
          "WaitForCopies<kRingSlots - 1>();", "WaitForCopies<kRingSlots>();",
          ["kernels/cuda/convolution_forward.cu"], KERNELS, "DenseTiles/CudaConvolutionOnTwo*"),
    Fault("missing_syncthreads_after_a_ring", "kernels/cuda/convolution_product.cuh",
          "    panel.Store(*weights, chunk, turn->tile);\n    __syncthreads();\n",
          "    panel.Store(*weights, chunk, turn->tile);\n",
          ["kernels/cuda/convolution_forward.cu"], KERNELS, "DenseTiles/CudaConvolutionOnTwo*"),
    Fault("missing_syncthreads_in_a_weight_gradient", "kernels/cuda/convolution_weight_gradient.cu",
          "      __syncthreads();\n      start(row + ahead * kChunk", "      start(row + ahead * kChunk",
          ["kernels/cuda/convolution_weight_gradient.cu"], KERNELS, "DenseTiles/CudaConvolutionOnTwo*"),
    Fault("copies_into_a_tile_that_is_multiplied", "kernels/cuda/convolution_weight_gradient.cu",
          "(tile + ahead) % kTiles<T>", "tile",
          ["kernels/cuda/convolution_weight_gradient.cu"], KERNELS, "DenseTiles/CudaConvolutionOnTwo*"),
    Fault("missing_syncthreads_in_a_suppression", "kernels/cuda/ssd_suppression.cuh",
          "    kept = min(kept + __popc(alive), max_boxes);\n    __syncthreads();\n",
          "    kept = min(kept + __popc(alive), max_boxes);\n",
          ["kernels/cuda/ssd_mining.cu"], KERNELS, "SsdLoss*"),
    Fault("missing_syncthreads_in_a_depthwise_convolution", "kernels/cuda/depthwise_forward.cu",
          "    __syncthreads();\n  }\n\n  if (statistics.parts == nullptr) return;\n  float* const sums = tile",
          "  }\n\n  if (statistics.parts == nullptr) return;\n  float* const sums = tile",
          ["kernels/cuda/depthwise_forward.cu"], KERNELS, "Depthwise/*"),
    Fault("misaligned_vector", "kernels/cuda/convolution_weight_gradient.cu",
          "Store8(zeros, value_tile(0) + 8 * i)", "Store8(zeros, value_tile(0) + 8 * i - (i > 0 ? 1 : 0))",
          ["kernels/cuda/convolution_weight_gradient.cu"], KERNELS, "DenseTiles/CudaConvolution.*/0"),
    Fault("upload_before_its_memory_is_zeroed", "kernels/cuda/cuda_device.cc",
          "    queue_.Note(cudaStreamWaitEvent(uploads_, zeroed_, 0), \"event\");\n", "",
          ["kernels/cuda/cuda_device.cc"], KERNELS, "CudaDeviceTest.*"),
    Fault("gradient_copied_before_it_is_computed", "worker/model/device_runner.cc",
          "  device_.RecordCompute(events.computed.get());\n  if (piece == 0) {",
          "  if (piece == 0) {\n    device_.RecordCompute(events.computed.get());",
          ["worker/model/device_runner.cc"], MODEL, "*EmulatedDevice*:*EmulatedStreams*"),
    Fault("stale_staging_buffer", "kernels/cuda/cuda_device.cc",
          "    queue_.Note(cudaStreamSynchronize(queue_.stream), \"write\");\n", "",
          ["kernels/cuda/cuda_device.cc"], KERNELS, "CudaDeviceTest.*"),
    Fault("images_overwritten_before_they_are_read", "worker/model/device_inputs.cc",
          "images_were_read_ ? images_read_.get() : nullptr", "nullptr",
          ["worker/model/device_inputs.cc"], MODEL, "*EmulatedDevice*:*EmulatedStreams*"),
    Fault("image_buffer_freed_during_its_upload", "worker/model/device_inputs.cc",
          "device_.Wait(images_uploaded_.get()).IgnoreError();", "{\n  }",
          ["worker/model/device_inputs.cc"], MODEL, "*EmulatedDevice*:*EmulatedStreams*"),
    Fault("write_after_free", "worker/model/device_inputs.cc",
          "  PP_ASSIGN_OR_RETURN(const bool moved, buffers_.GrowObjects(bytes));\n",
          "  void* const to = buffers_.objects.device->data();\n"
          "  PP_ASSIGN_OR_RETURN(const bool moved, buffers_.GrowObjects(bytes));\n"
          "  device_.CopyToDevice(to, buffers_.objects.host->data(), 4);\n",
          ["worker/model/device_inputs.cc"], MODEL, "*EmulatedDevice*:*EmulatedStreams*"),
    Fault("write_past_the_end", "kernels/cuda/elementwise.cu",
          "i < size; i += step) {\n    out[i] = 0.0f;", "i <= size; i += step) {\n    out[i] = 0.0f;",
          ["kernels/cuda/elementwise.cu"], KERNELS, "Elementwise*"),
    Fault("write_past_the_end_of_shared_memory", "kernels/cuda/convolution_weight_gradient.cu",
          "for (int i = threadIdx.x; i < kVectors; i +=", "for (int i = threadIdx.x; i <= kVectors; i +=",
          ["kernels/cuda/convolution_weight_gradient.cu"], KERNELS, "DenseTiles/CudaConvolution.*/0"),
    Fault("skipped_barrier", "kernels/cuda/pool.cu",
          "  __syncthreads();\n  if (row != 0 || vector >= channel_vectors) return;\n"
          "  for (int r = 1; r < rows; ++r) {\n#pragma unroll\n"
          "    for (int i = 0; i < kWidth; ++i) sum[i] += sums",
          "  if (row != 0 || vector >= channel_vectors) return;\n  __syncthreads();\n"
          "  for (int r = 1; r < rows; ++r) {\n#pragma unroll\n"
          "    for (int i = 0; i < kWidth; ++i) sum[i] += sums",
          ["kernels/cuda/pool.cu"], KERNELS, "*Pool*"),
]


class Build:
    """A build folder: its commands, and variants of its test programs."""

    def __init__(self, folder):
        self.folder = folder
        self.compiles = json.loads((folder / "compile_commands.json").read_text())

    def entries(self, source):
        """Returns the commands that compile the source by itself."""
        return [e for e in self.compiles if os.path.normpath(e["file"]) == str(ROOT / source)
                and ("-DPUSHPULL_CUDA_EMULATION" in e["command"] or not source.startswith("kernels/cuda"))]

    def compile(self, source, overlay, object_file):
        """Compiles a source; files of the folder `overlay` take the place of the tree's."""
        entries = self.entries(source)
        words = shlex.split(entries[0]["command"])
        words[words.index("-o") + 1] = str(object_file)
        changed = overlay / source
        words[words.index(entries[0]["file"])] = str(changed if changed.exists() else ROOT / source)
        at = next(i for i, word in enumerate(words) if word.startswith("-I"))
        words.insert(at, f"-I{overlay}")
        subprocess.run(words, cwd=entries[0]["directory"], check=True)

    def link(self, program, objects, output):
        """Links a test program with these objects in front of all others."""
        commands = subprocess.run(["ninja", "-C", str(self.folder), "-t", "commands", "-s", f"bin/{program}"],
                                  check=True, capture_output=True, text=True).stdout
        line = [line for line in commands.splitlines() if f"-o bin/{program} " in line][-1]
        words = shlex.split(line.split("&&")[1])
        at = words.index("-o")
        words[at + 1:at + 2] = [str(output)] + [str(o) for o in objects]
        subprocess.run(words, cwd=self.folder, check=True)


def first_finding(output):
    """The first message of a failed test, in short, with the test's name."""
    running = re.findall(r"\[ RUN      \] (\S+)", output)
    failed = re.findall(r"\[  FAILED  \] (\S+?),? ", output)
    fatal = re.search(r"^F\d+ .*?\] (.*)$", output, re.MULTILINE)
    if fatal:
        return f"{running[-1] if running else 'at the end'}: {fatal.group(1)}"
    if failed:
        return f"{failed[0]}: wrong result"
    return "the program ended early"


def run_tests(program, tests):
    """Returns what the tests found, or None."""
    command = [str(program), f"--gtest_filter={tests}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return "the tests do not end"
    if re.search(r"Running 0 tests", done.stdout):
        raise SystemExit(f"no test is named {tests}")
    return None if done.returncode == 0 else first_finding(done.stdout + done.stderr)


def why_it_does_not_fit(build, fault):
    """Returns why the fault cannot be put into the sources and the build, or None."""
    found = (ROOT / fault.file).read_text().count(fault.before)
    if found != 1:
        return f"{fault.name}: {fault.file} has changed: {fault.before!r} is there {found} times"
    for source in fault.compiled:
        if not build.entries(source):
            return f"{fault.name}: {source} is not compiled by itself in {build.folder} (SKIP_UNITY_BUILD_INCLUSION)"
    return None


def make_fault(build, fault, folder):
    """Returns the objects that have the fault."""
    text = (ROOT / fault.file).read_text()
    if why := why_it_does_not_fit(build, fault):
        raise SystemExit(why)
    changed = folder / "sources" / fault.file
    changed.parent.mkdir(parents=True)
    changed.write_text(text.replace(fault.before, fault.after))
    objects = []
    for source in fault.compiled:
        objects.append(folder / (source.replace("/", "_") + ".o"))
        build.compile(source, folder / "sources", objects[-1])
    return objects


def find(build, folder, program, tests, objects):
    """Returns what the tests find with all checks, and without the newer ones."""
    off = folder / "sources/kernels/cuda/emulation/checks.cc"
    off.parent.mkdir(parents=True, exist_ok=True)
    off.write_text(WITHOUT_CHECKS)
    off_object = folder / "checks.o"
    build.compile("kernels/cuda/emulation/checks.cc", folder / "sources", off_object)
    found = []
    for extra in ([], [off_object]):
        variant = folder / f"{program}_{len(extra)}"
        build.link(program, objects + extra, variant)
        found.append(run_tests(variant, tests))
    return found


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("faults", nargs="*")
    try:
        arguments = parser.parse_args()
    except SystemExit as stop:  # argparse has printed why
        return 64 if stop.code else 0
    unknown = set(arguments.faults) - {fault.name for fault in FAULTS}
    if unknown:
        print(f"no such fault: {' '.join(sorted(unknown))}", file=sys.stderr)
        return 64
    chosen = [fault for fault in FAULTS if not arguments.faults or fault.name in arguments.faults]
    build = Build(arguments.build.resolve())
    if arguments.fit:
        outdated = [why for fault in chosen if (why := why_it_does_not_fit(build, fault))]
        print("\n".join(outdated) or f"all {len(chosen)} faults fit the sources and the build")
        return 1 if outdated else 0
    passed = True
    for program, tests in sorted({(fault.program, fault.tests) for fault in chosen}):
        with tempfile.TemporaryDirectory() as name:
            found = find(build, pathlib.Path(name), program, tests, [])
        if found != [None, None]:
            print(f"the sources as they are fail {program} {tests}: {found}", flush=True)
            passed = False
    for fault in chosen:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            found, without = find(build, folder, fault.program, fault.tests, make_fault(build, fault, folder))
        passed = passed and found is not None
        print(f"{fault.name}\n  all checks:     {found or 'NOT FOUND'}\n  without newer:  {without or 'not found'}",
              flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
