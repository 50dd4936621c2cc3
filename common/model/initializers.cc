#include "common/model/initializers.h"

#include <algorithm>
#include <cmath>

#include "glog/logging.h"

#include "common/base/random.h"

namespace pushpull {
namespace {

// Draws a standard normal value and, like TensorFlow, draws again while it is beyond two
// deviations.
double NextTruncatedNormal(CounterRandom* random) {
  constexpr double kBound = 2.0;
  double value = random->NextNormal();
  while (std::abs(value) > kBound) value = random->NextNormal();
  return value;
}

void Fill(const Initializer& initializer, CounterRandom random, absl::Span<float> values) {
  const double mean = initializer.mean;
  const double deviation = initializer.stddev;
  switch (initializer.kind) {
    case Initializer::Kind::kConstant:
      std::fill(values.begin(), values.end(), initializer.mean);
      return;
    case Initializer::Kind::kTruncatedNormal:
      for (float& value : values) {
        value = static_cast<float>(mean + deviation * NextTruncatedNormal(&random));
      }
      return;
    case Initializer::Kind::kRandomNormal:
      for (float& value : values) {
        value = static_cast<float>(mean + deviation * random.NextNormal());
      }
      return;
    case Initializer::Kind::kUniform:
      for (float& value : values) {
        value = static_cast<float>(mean + deviation * (2.0 * random.NextFloat() - 1.0));
      }
      return;
  }
}

}  // namespace

void InitializeVariables(const VariableLayout& layout, uint64_t seed, absl::Span<float> flat) {
  CHECK_EQ(static_cast<int64_t>(flat.size()), layout.total_elements());
  std::fill(flat.begin(), flat.end(), 0.0f);
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const VariableSpec& variable = layout.variables()[i];
    Fill(variable.initializer, CounterRandom(seed, StableHash(variable.name)),
         flat.subspan(layout.offset(i), layout.num_elements(i)));
  }
}

}  // namespace pushpull
