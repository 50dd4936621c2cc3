// A GPU that takes the time of one and computes nothing: operators and copies last as long as their
// bytes would, all numbers stay as they are. What a clone does around its GPU can so be measured
// without one.
#ifndef PUSHPULL_SCRIPTS_BENCH_PACED_PACED_DEVICE_H_
#define PUSHPULL_SCRIPTS_BENCH_PACED_PACED_DEVICE_H_

#include <memory>

#include "kernels/device.h"

namespace pushpull {

struct DevicePace {
  double memory_bytes_per_second = 4.3e12;  // that an operator moves
  double link_bytes_per_second = 50e9;      // each way between host and device
  double operator_seconds = 3e-6;           // at least, each
  double copy_seconds = 8e-6;               // on top of the bytes, each
};

// Memory of the device is address space of the host that is never touched.
std::unique_ptr<Device> MakePacedDevice(const DevicePace& pace);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_PACED_PACED_DEVICE_H_
