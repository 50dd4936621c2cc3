#include "common/model/initializers.h"

#include <algorithm>
#include <cmath>

#include "glog/logging.h"

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

}  // namespace

InitialValues::InitialValues(const VariableSpec& variable, uint64_t seed)
    : initializer_(variable.initializer), random_(seed, StableHash(variable.name)) {}

void InitialValues::Next(absl::Span<float> values) {
  const double mean = initializer_.mean;
  const double deviation = initializer_.stddev;
  switch (initializer_.kind) {
    case Initializer::Kind::kConstant:
      std::fill(values.begin(), values.end(), initializer_.mean);
      return;
    case Initializer::Kind::kTruncatedNormal:
      for (float& value : values) {
        value = static_cast<float>(mean + deviation * NextTruncatedNormal(&random_));
      }
      return;
    case Initializer::Kind::kRandomNormal:
      for (float& value : values) {
        value = static_cast<float>(mean + deviation * random_.NextNormal());
      }
      return;
    case Initializer::Kind::kUniform:
      for (float& value : values) {
        value = static_cast<float>(mean + deviation * (2.0 * random_.NextFloat() - 1.0));
      }
      return;
  }
}

void InitializeVariables(const VariableLayout& layout, uint64_t seed, absl::Span<float> flat) {
  CHECK_EQ(static_cast<int64_t>(flat.size()), layout.total_elements());
  std::fill(flat.begin(), flat.end(), 0.0f);
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    InitialValues(layout.variables()[i], seed)
        .Next(flat.subspan(layout.offset(i), layout.num_elements(i)));
  }
}

}  // namespace pushpull
