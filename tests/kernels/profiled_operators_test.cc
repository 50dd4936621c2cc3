#include "kernels/profiled_operators.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/cpu/reference_operators.h"
#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull {
namespace {

class Recorder : public OperatorProfiler {
 public:
  void Record(const OperatorRecord& record) override { records.push_back(record); }
  std::vector<OperatorRecord> records;
};

int64_t Ticks() {
  static int64_t now = 0;
  return now += 10;
}

TEST(ProfiledOperators, ReportsTheWorkAndForwardsTheCall) {
  const auto reference = MakeReferenceOperators<float>();
  Recorder recorder;
  const auto operators = MakeProfiledOperators(reference.get(), &recorder, Ticks);
  const ConvolutionShape shape = SameConvolution({1, 2, 2, 3}, 5, 1, 1);
  const std::vector<float> x(12, 1.0f), weights(15, 2.0f), dz(20, 1.0f);
  std::vector<float> y(20), dweights(15), dx(12);
  const Lazy<float> lazy{shape.in, x.data(), nullptr, FusedActivation::kNone, nullptr, nullptr};
  operators->Convolution(shape, lazy, weights.data(), nullptr, y.data(), {}, {});
  operators->ConvolutionBackward(shape, lazy, weights.data(),
                                 {dz.data(), nullptr, nullptr, nullptr, nullptr}, dweights.data(),
                                 nullptr, {dx.data(), nullptr, nullptr, nullptr}, {});
  EXPECT_EQ(y, std::vector<float>(20, 6.0f));
  EXPECT_EQ(dx, std::vector<float>(12, 10.0f));
  ASSERT_EQ(recorder.records.size(), 2);
  const OperatorRecord& forward = recorder.records[0];
  EXPECT_EQ(std::string(forward.name), "convolution");
  EXPECT_EQ(forward.in, shape.in);
  EXPECT_EQ(forward.out, shape.out());
  EXPECT_EQ(forward.flops, 2 * 4 * 3 * 5);
  EXPECT_EQ(forward.bytes, 4 * (12 + 15 + 20));
  EXPECT_EQ(forward.nanoseconds, 10);
  const OperatorRecord& backward = recorder.records[1];
  EXPECT_EQ(std::string(backward.name), "convolution_backward");
  EXPECT_EQ(backward.flops, 2 * forward.flops);
  EXPECT_EQ(backward.bytes, 4 * (12 + 20 + 2 * 15 + 12));
}

}  // namespace
}  // namespace pushpull
