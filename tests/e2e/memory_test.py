"""The server's memory stays within a bound, and a clone's memory does not grow. PUSHPULL_TEST_FULL=1: 2,000 steps."""
import json
import os
import struct
import time

from harness import SYNTHETIC, EndToEndTest, main
from processes import children, resident_bytes

FULL = os.environ.get("PUSHPULL_TEST_FULL") == "1"
MIB = 1 << 20


class Memory(EndToEndTest):

    def test_server_is_bounded_and_clones_are_flat(self):
        steps = 2000 if FULL else 300
        config = self.write_config(steps=steps, batch=24, width=0.5,
                                   reader=SYNTHETIC.format(n=2000, seed=1),
                                   train="save_checkpoints_steps: 100")
        server = self.start_server(config)
        worker = self.start_worker("run", 3)
        server.wait_for("clone 2 (")
        samples, server_peak = [], 0
        while worker.popen.poll() is None:
            time.sleep(0.2)
            try:
                samples.append(max(resident_bytes(pid) for pid in children(worker.popen.pid)))
                server_peak = max(server_peak, resident_bytes(server.popen.pid, "VmHWM"))
            except (ProcessLookupError, ValueError, FileNotFoundError):
                break
        self.assertEqual(worker.wait(), 0, worker.text())
        self.assertEqual(server.wait(), 0, server.text())

        # Two versions of the weights and their momentum, three gradients, and 64 MiB for everything else.
        shard = self.checkpoint(steps)
        header = json.loads(shard[8:8 + struct.unpack("<Q", shard[:8])[0]])
        weights = sum(entry["data_offsets"][1] - entry["data_offsets"][0]
                      for name, entry in header.items()
                      if name != "__metadata__" and not name.endswith("/Momentum"))
        bound = 2 * (2 * weights) + 3 * weights + 64 * MIB
        self.assertLessEqual(server_peak, bound)

        # The allocator's arenas grow to their final size in steps of one to six MiB, at a time that depends on the
        # load. Beyond that, the test detects a clone that leaks more than a thirtieth of a gradient (2.8 MB) per step.
        settling = 12 * MIB
        self.assertGreater(len(samples), 8)
        early = max(samples[len(samples) // 4:len(samples) // 2])
        late = max(samples[len(samples) * 3 // 4:])
        self.assertLessEqual(late, early + settling)


if __name__ == "__main__":
    main()
