// A GPU that takes time but computes nothing: operators and copies last as long as their bytes
// would take, and no number changes. It shows what a clone does around its GPU on machines without
// one.
#ifndef PUSHPULL_SCRIPTS_BENCH_PACED_PACED_DEVICE_H_
#define PUSHPULL_SCRIPTS_BENCH_PACED_PACED_DEVICE_H_

#include <memory>

#include "kernels/device.h"

namespace pushpull {

struct DevicePace {
  double memory_bytes_per_second = 4.3e12;  // bandwidth of operators
  double link_bytes_per_second = 50e9;      // in each direction between host and device
  double operator_seconds = 3e-6;           // minimum time of each operator
  double copy_seconds = 8e-6;               // time of each copy in addition to its bytes
};

// The device's memory is address space of the host that is never touched.
std::unique_ptr<Device> MakePacedDevice(const DevicePace& pace);

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_PACED_PACED_DEVICE_H_
