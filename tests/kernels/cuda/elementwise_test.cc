// Compares kernels other than convolutions with the reference operators, on the same rounded
// inputs.
#include "kernels/cuda/elementwise.h"

#include <cmath>
#include <limits>
#include <string>

#include "kernels/cpu/reference_operators.h"
#include "kernels/scalar_math.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/testkit/kernels/compare.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

template <typename T>
class ElementwiseTest : public DeviceFixture<testing::Test> {};
using Types = testing::Types<float, Bfloat16>;
TYPED_TEST_SUITE(ElementwiseTest, Types);
class ElementwiseFixture : public DeviceFixture<testing::Test> {};

std::string Text(const Shape& s) {
  return std::to_string(s.n) + "x" + std::to_string(s.h) + "x" + std::to_string(s.w) + "x" +
         std::to_string(s.c);
}

// A lazy tensor on the device, and the same tensor for the reference.
template <typename T>
class LazyPair {
 public:
  LazyPair(const Shape& shape, bool normalized, FusedActivation activation, bool with_skip)
      : raw_values_(RandomNumbers<T>(shape.size(), 1, 2.0, 0.5)),
        skip_values_(RandomNumbers<T>(shape.size(), 2)),
        raw_(raw_values_),
        skip_(skip_values_),
        raw_doubles_(ToDoubles(raw_values_)),
        skip_doubles_(ToDoubles(skip_values_)) {
    for (int i = 0; i < 4; ++i) {
      std::vector<float> values = RandomNumbers<float>(shape.c, 3 + i, 0.5, i == 0 ? 1.0 : 0.3);
      if (i == 3) {
        for (float& v : values) v = 0.2f + v * v;  // the variance
      }
      vector_doubles_.push_back(ToDoubles(values));
      vectors_.push_back(std::make_unique<DeviceArray<float>>(values));
    }
    device_norm_ = {vectors_[0]->data(), vectors_[1]->data(), vectors_[2]->data(),
                    vectors_[3]->data()};
    host_norm_ = {vector_doubles_[0].data(), vector_doubles_[1].data(), vector_doubles_[2].data(),
                  vector_doubles_[3].data()};
    device.shape = host.shape = shape;
    device.activation = host.activation = activation;
    device.raw = raw_.data();
    host.raw = raw_doubles_.data();
    if (normalized) {
      device.batch_norm = &device_norm_;
      host.batch_norm = &host_norm_;
    }
    if (with_skip) {
      device.skip = skip_.data();
      host.skip = skip_doubles_.data();
    }
  }

  Lazy<T> device;
  Lazy<double> host;

 private:
  std::vector<T> raw_values_, skip_values_;
  DeviceArray<T> raw_, skip_;
  std::vector<double> raw_doubles_, skip_doubles_;
  std::vector<std::vector<double>> vector_doubles_;
  std::vector<std::unique_ptr<DeviceArray<float>>> vectors_;
  BatchNorm<float> device_norm_;
  BatchNorm<double> host_norm_;
};

// A device with few multiprocessors, so that loops over the grid iterate more than once.
Queue SmallQueue() {
  Queue queue;
  queue.multiprocessors = 1;
  return queue;
}

// Rows of a single vector, of many vectors and of less than a vector, and more channels than
// threads.
const Shape kShapes[] = {{2, 3, 5, 7},   {1, 9, 11, 24},  {3, 1, 1, 1},    {2, 5, 5, 64},
                         {1, 31, 30, 8}, {5, 1, 1, 1280}, {1, 3, 1, 2111}, {65, 1, 1, 40},
                         {1, 1, 1, 8},   {3, 4, 4, 264},  {700, 1, 1, 3}};

template <typename Visit>
void ForEachLazy(Visit visit) {
  for (const Shape& shape : kShapes) {
    for (const bool normalized : {false, true}) {
      for (const auto activation :
           {FusedActivation::kNone, FusedActivation::kRelu, FusedActivation::kRelu6}) {
        for (const bool skip : {false, true}) {
          if (skip && activation != FusedActivation::kNone) continue;
          const std::string label = Text(shape) + (normalized ? " norm" : "") + " activation " +
                                    std::to_string(static_cast<int>(activation)) +
                                    (skip ? " skip" : "");
          SCOPED_TRACE(label);
          visit(shape, normalized, activation, skip);
        }
      }
    }
  }
}

TYPED_TEST(ElementwiseTest, ApplyComputesTheValue) {
  using T = TypeParam;
  ForEachLazy([](const Shape& shape, bool normalized, FusedActivation activation, bool skip) {
    LazyPair<T> x(shape, normalized, activation, skip);
    x.device.applied = x.device.raw;  // must not be read
    Queue queue = SmallQueue();
    const std::vector<T> got = InAllOrders([&] {
      DeviceArray<T> out(shape.size());
      ApplyLazy(&queue, x.device, out.data());
      return out.Take();
    });
    std::vector<double> want(shape.size());
    MakeReferenceOperators<double>()->Apply(x.host, want.data());
    ExpectClose("value", want, ToDoubles(got), ToleranceOf<T>());
  });
}

TYPED_TEST(ElementwiseTest, PoolForwardComputesTheMean) {
  using T = TypeParam;
  ForEachLazy([](const Shape& shape, bool normalized, FusedActivation activation, bool skip) {
    LazyPair<T> x(shape, normalized, activation, skip);
    Queue queue = SmallQueue();
    const std::vector<T> got = InAllOrders([&] {
      DeviceArray<T> out(shape.n * shape.c);
      PoolForward(&queue, x.device, out.data());
      return out.Take();
    });
    std::vector<double> want(shape.n * shape.c);
    MakeReferenceOperators<double>()->GlobalAveragePool(x.host, want.data());
    ExpectClose("mean", want, ToDoubles(got), ToleranceOf<T>());
  });
}

TYPED_TEST(ElementwiseTest, PoolForwardReadsTheAppliedValue) {
  using T = TypeParam;
  for (const Shape& shape : {Shape{2, 3, 3, 16}, Shape{4, 1, 1, 16}, Shape{4, 1, 1, 5}}) {
    LazyPair<T> x(shape, true, FusedActivation::kRelu, false);
    const std::vector<T> applied_values = RandomNumbers<T>(shape.size(), 77);
    DeviceArray<T> applied(applied_values), out(shape.n * shape.c);
    const std::vector<double> applied_doubles = ToDoubles(applied_values);
    x.device.applied = applied.data();
    x.host.applied = applied_doubles.data();
    Queue queue = SmallQueue();
    PoolForward(&queue, x.device, out.data());
    std::vector<double> want(shape.n * shape.c);
    MakeReferenceOperators<double>()->GlobalAveragePool(x.host, want.data());
    ExpectClose(Text(shape), want, ToDoubles(out.Take()), ToleranceOf<T>());
  }
}

// dz, dbeta and dgamma one after another.
template <typename T>
std::vector<float> PoolGradients(const LazyPair<T>& x, const std::vector<T>& dy_values,
                                 const std::vector<T>& add_values, bool in_place) {
  const Shape& shape = x.device.shape;
  Queue queue = SmallQueue();
  DeviceArray<T> dy(dy_values), add(add_values);
  DeviceArray<T> dz(add_values.empty() ? std::vector<T>(shape.size()) : add_values);
  DeviceArray<float> dbeta(shape.c), dgamma(shape.c);
  DeviceArray<char> workspace(PoolWorkspaceBytes(queue, shape));
  InputGradient<T> dx;
  dx.dz = dz.data();
  if (!add_values.empty()) dx.add = in_place ? dz.data() : add.data();
  if (x.device.batch_norm != nullptr) {
    dx.dbeta = dbeta.data();
    dx.dgamma = dgamma.data();
  }
  PoolBackward(&queue, x.device, dy.data(), dx, workspace.data());
  std::vector<float> all;
  for (const T value : dz.Take()) all.push_back(ToFloat(value));
  if (x.device.batch_norm == nullptr) return all;
  for (const auto& sums : {dbeta.Take(), dgamma.Take()}) {
    all.insert(all.end(), sums.begin(), sums.end());
  }
  return all;
}

TYPED_TEST(ElementwiseTest, PoolBackwardComputesTheGradient) {
  using T = TypeParam;
  enum class Add { kNone, kOther, kInPlace };
  ForEachLazy([](const Shape& shape, bool normalized, FusedActivation activation, bool skip) {
    for (const Add add : {Add::kNone, Add::kOther, Add::kInPlace}) {
      const LazyPair<T> x(shape, normalized, activation, skip);
      const std::vector<T> dy = RandomNumbers<T>(shape.n * shape.c, 11, 1.0, 0.2);
      const std::vector<T> add_values =
          add == Add::kNone ? std::vector<T>() : RandomNumbers<T>(shape.size(), 12, 1.0, 0.1);
      const std::vector<float> got =
          InAllOrders([&] { return PoolGradients(x, dy, add_values, add == Add::kInPlace); });

      const std::vector<double> dy_doubles = ToDoubles(dy), add_doubles = ToDoubles(add_values);
      std::vector<double> dz(shape.size()), dbeta(shape.c), dgamma(shape.c);
      InputGradient<double> dx;
      dx.dz = dz.data();
      dx.add = add == Add::kNone ? nullptr : add_doubles.data();
      if (normalized) {
        dx.dbeta = dbeta.data();
        dx.dgamma = dgamma.data();
      }
      MakeReferenceOperators<double>()->GlobalAveragePoolBackward(x.host, dy_doubles.data(), dx,
                                                                  {});
      const auto part = [&got](int64_t first, int64_t count) {
        return std::vector<float>(got.begin() + first, got.begin() + first + count);
      };
      ExpectClose("dz", dz, part(0, shape.size()), ToleranceOf<T>());
      if (!normalized) continue;
      ExpectClose("dbeta", dbeta, part(shape.size(), shape.c), ToleranceOf<T>());
      ExpectClose("dgamma", dgamma, part(shape.size() + shape.c, shape.c), ToleranceOf<T>());
    }
  });
}

TYPED_TEST(ElementwiseTest, AcceptsUnalignedAddresses) {
  using T = TypeParam;
  const Shape shape{2, 3, 3, 16};
  LazyPair<T> aligned(shape, true, FusedActivation::kRelu6, false);
  std::vector<T> shifted_values =
      Nearest<T>(std::vector<double>(aligned.host.raw, aligned.host.raw + shape.size()));
  shifted_values.insert(shifted_values.begin(), Nearest<T>(0.0));
  DeviceArray<T> shifted(shifted_values), out(shape.size()), expected(shape.size());
  Queue queue = SmallQueue();
  ApplyLazy(&queue, aligned.device, expected.data());
  Lazy<T> off = aligned.device;
  off.raw = shifted.data() + 1;
  ApplyLazy(&queue, off, out.data());
  ExpectClose("value", ToDoubles(expected.Take()), ToDoubles(out.Take()), ToleranceOf<T>());
}

TYPED_TEST(ElementwiseTest, NanStaysNan) {
  using T = TypeParam;
  for (const auto activation :
       {FusedActivation::kNone, FusedActivation::kRelu, FusedActivation::kRelu6}) {
    DeviceArray<T> raw(std::vector<T>(16, Nearest<T>(std::nan("")))), out(16);
    Lazy<T> x;
    x.shape = {2, 1, 1, 8};
    x.raw = raw.data();
    x.activation = activation;
    Queue queue = SmallQueue();
    ApplyLazy(&queue, x, out.data());
    for (const T value : out.Take()) EXPECT_TRUE(std::isnan(ToFloat(value)));
  }
}

TYPED_TEST(ElementwiseTest, DropoutDropsTheSameEntries) {
  using T = TypeParam;
  for (const int64_t size :
       {int64_t{1}, int64_t{8}, int64_t{1001}, int64_t{4096}, int64_t{30000}}) {
    for (const double rate : {0.0, 0.2, 0.999}) {
      const std::vector<T> values = RandomNumbers<T>(size, 5);
      const uint64_t seed = 0x123456789abcdef0ULL, salt = 0xfedcba9876543210ULL;
      DeviceArray<uint64_t> device_seed(std::vector<uint64_t>{seed});
      DeviceArray<T> x(values);
      Queue queue = SmallQueue();
      const std::vector<T> got = InAllOrders([&] {
        DeviceArray<T> y(size);
        DropEntries(&queue, size, x.data(), rate, device_seed.data(), salt, y.data());
        return y.Take();
      });
      const std::vector<double> x_doubles = ToDoubles(values);
      std::vector<double> want(size);
      MakeReferenceOperators<double>()->Dropout(size, x_doubles.data(), rate, &seed, salt,
                                                want.data());
      ExpectClose("y", want, ToDoubles(got), ToleranceOf<T>());
      for (int64_t i = 0; i < size; ++i) EXPECT_EQ(ToFloat(got[i]) == 0.0f, want[i] == 0.0) << i;
      DropEntries(&queue, size, x.data(), rate, device_seed.data(), salt, x.data());
      EXPECT_TRUE(SameBits(x.Take(), got)) << "the result in place differs";
    }
  }
}

TYPED_TEST(ElementwiseTest, ConversionsRoundToNearest) {
  using T = TypeParam;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int64_t size : {int64_t{1}, int64_t{77}, int64_t{4096}, int64_t{20000}}) {
    std::vector<float> values = RandomNumbers<float>(size, 9, 100.0);
    values[0] = kInfinity;
    if (size > 5) values[5] = 1.00390625f;  // halfway between two bfloat16 values: rounds to even
    DeviceArray<float> from(values), back(size);
    DeviceArray<T> to(size);
    Queue queue = SmallQueue();
    ConvertFromFloat(&queue, size, from.data(), to.data());
    ConvertToFloat(&queue, size, to.data(), back.data());
    const std::vector<T> got = to.Take();
    const std::vector<float> got_back = back.Take();
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_EQ(ToFloat(got[i]), ToFloat(Nearest<T>(values[i]))) << i;
      EXPECT_EQ(got_back[i], ToFloat(got[i])) << i;
    }
  }
}

TEST_F(ElementwiseFixture, ZeroesExactlyTheGivenRange) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{5000}}) {
    DeviceArray<float> out(size);
    Queue queue = SmallQueue();
    Zero(&queue, size, out.data());
    for (const float value : out.Take()) EXPECT_EQ(value, 0.0f);
  }
}

TEST_F(ElementwiseFixture, AddsToExactlyTheGivenRange) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{5000}}) {
    const std::vector<float> x = RandomNumbers<float>(size, 1), sum = RandomNumbers<float>(size, 2);
    DeviceArray<float> device_x(x), device_sum(sum);
    Queue queue = SmallQueue();
    AddTo(&queue, size, device_x.data(), device_sum.data());
    const std::vector<float> got = device_sum.Take();
    for (int64_t i = 0; i < size; ++i) EXPECT_EQ(got[i], sum[i] + x[i]) << i;
  }
}

TEST_F(ElementwiseFixture, ComputesMovingStatistics) {
  constexpr int kChannels = 300;
  const std::vector<float> mean = RandomNumbers<float>(kChannels, 1);
  const std::vector<float> variance = RandomNumbers<float>(kChannels, 2, 1.0, 0.5);
  DeviceArray<float> device_mean(mean), device_variance(variance);
  Queue queue = SmallQueue();
  // More batch norms than one launch serves, of 1 to 300 channels.
  constexpr int kNorms = 200;
  DeviceArray<float> out_mean(kNorms * kChannels), out_variance(kNorms * kChannels);
  std::vector<float> want_mean(kNorms * kChannels), want_variance(kNorms * kChannels);
  std::vector<PushedStatistics<float>> on_device, on_host;
  int64_t first = 0;
  for (int n = 0; n < kNorms; ++n) {
    const int64_t channels = n == 7 ? kChannels : n + 1, rows = n % 4 == 0 ? 1 : n * n;
    on_device.push_back({channels, rows, device_mean.data(), device_variance.data(),
                         out_mean.data() + first, out_variance.data() + first});
    on_host.push_back({channels, rows, mean.data(), variance.data(), want_mean.data() + first,
                       want_variance.data() + first});
    first += channels;
  }
  MovingStatistics(&queue, on_device);
  MakeReferenceOperators<float>()->MovingStatistics(on_host);
  want_mean.resize(first);
  want_variance.resize(first);
  std::vector<float> got_mean = out_mean.Take(), got_variance = out_variance.Take();
  got_mean.resize(first);
  got_variance.resize(first);
  EXPECT_EQ(want_mean, got_mean);
  EXPECT_EQ(want_variance, got_variance);
}

TEST_F(ElementwiseFixture, RemovesTheInitialValuesOfMovingStatistics) {
  constexpr int kChannels = 300;
  const std::vector<float> mean = RandomNumbers<float>(kChannels, 1);
  std::vector<float> variance = RandomNumbers<float>(kChannels, 2, 1.0, 0.5);
  // A variance below the remaining weight of its initial value, and a NaN.
  variance[3] = 0.1f;
  variance[4] = std::nanf("");
  DeviceArray<float> device_mean(mean), device_variance(variance), out_mean(kChannels),
      out_variance(kChannels);
  Queue queue = SmallQueue();
  std::vector<float> want_mean(kChannels), want_variance(kChannels);
  CorrectStatistics(&queue, kChannels, 0.25, device_mean.data(), device_variance.data(),
                    out_mean.data(), out_variance.data());
  MakeReferenceOperators<float>()->CorrectStatistics(kChannels, 0.25, mean.data(), variance.data(),
                                                     want_mean.data(), want_variance.data());
  std::vector<float> got_variance = out_variance.Take();
  EXPECT_EQ(got_variance[3], 0.0f);
  EXPECT_TRUE(std::isnan(got_variance[4]));
  got_variance[4] = want_variance[4] = 0.0f;
  ExpectClose("corrected mean", want_mean, out_mean.Take(), 1e-6);
  ExpectClose("corrected variance", want_variance, got_variance, 1e-6);
}

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
