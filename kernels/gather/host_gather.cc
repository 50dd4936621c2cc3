// Tested by tests/kernels/gather/gather_test.cc.
#include "kernels/gather/host_gather.h"

#include <algorithm>

namespace pushpull {
namespace {

// The elements that a task computes, about: enough to outweigh handing the task out.
constexpr int64_t kTaskElements = 16 << 10;

}  // namespace

template <typename T>
void RunOnHost(
    const Gather<T>& gather,
    absl::FunctionRef<void(int64_t count, absl::FunctionRef<void(int64_t)> body)> parallel_for) {
  std::visit(
      [&](const auto& formula) {
        const int64_t rows = formula.rows, channels = formula.channels;
        const int64_t per_task =
            std::max<int64_t>(1, kTaskElements / std::max<int64_t>(channels, 1));
        parallel_for((rows + per_task - 1) / per_task, [&](int64_t task) {
          const auto local = formula;  // so that the compiler need not read it again after a store
          const int64_t end = std::min(rows, (task + 1) * per_task);
          for (int64_t row = task * per_task; row < end; ++row) {
            for (int64_t c = 0; c < channels; ++c) local(row, c);
          }
        });
      },
      gather);
}

template void RunOnHost<float>(const Gather<float>&,
                               absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)>);
template void RunOnHost<Bfloat16>(
    const Gather<Bfloat16>&, absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)>);
template void RunOnHost<double>(const Gather<double>&,
                                absl::FunctionRef<void(int64_t, absl::FunctionRef<void(int64_t)>)>);

}  // namespace pushpull
