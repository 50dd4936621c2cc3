// Runs every gather on the GPU, or its emulation, and on the host, with the same rounded inputs.
#include <cmath>

#include "kernels/cuda/gather.h"
#include "kernels/gather/host_gather.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/testkit/kernels/gather_cases.h"
#include "tests/testkit/kernels/serial_loop.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

template <typename T>
class CudaGatherTest : public DeviceFixture<testing::Test> {};
using Types = testing::Types<float, Bfloat16>;
TYPED_TEST_SUITE(CudaGatherTest, Types);

TYPED_TEST(CudaGatherTest, MatchesTheHost) {
  using T = TypeParam;
  const std::vector<GatherCase<T>> cases = AllGatherCases<T>();
  const std::vector<GatherCase<double>> exact = AllGatherCases<double>();
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].name);
    const std::vector<T> a = RandomNumbers<T>(cases[i].a, 1, 4.0);
    const std::vector<T> b = RandomNumbers<T>(cases[i].b, 2, 4.0);
    const std::vector<T> start = RandomNumbers<T>(cases[i].out, 3);
    DeviceArray<T> device_a(a), device_b(b), out(start);
    RunGather<T>(this->queue(), cases[i].make({device_a.data(), device_b.data(), out.data()}));
    const std::vector<double> got = ToDoubles(out.Take());

    const std::vector<double> host_a = ToDoubles(a), host_b = ToDoubles(b);
    std::vector<double> expected = ToDoubles(start);
    RunOnHost<double>(exact[i].make({host_a.data(), host_b.data(), expected.data()}), SerialLoop);
    const double rounding = std::is_same_v<T, float> ? 1e-6 : 1.0 / 256;
    for (size_t k = 0; k < expected.size(); ++k) {
      // Sums of up to nine numbers of about 4.
      EXPECT_NEAR(got[k], expected[k], rounding * (std::abs(expected[k]) + 4.0)) << "element " << k;
    }
  }
}

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
