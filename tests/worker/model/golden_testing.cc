#include "tests/worker/model/golden_testing.h"

#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace pushpull {

Golden ReadGolden(const std::string& name) {
  const std::string path = absl::StrCat(PUSHPULL_SOURCE_DIR, "/tests/golden/", name, ".txt");
  std::ifstream file(path);
  CHECK(file) << "no " << path;
  Golden golden;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "#") continue;
    if (key == "loss") {
      words >> golden.loss;
    } else if (key == "evaluated_loss") {
      words >> golden.evaluated_loss;
    } else {
      GoldenVariable& v = golden.variables[key];
      words >> v.norm >> v.first >> v.middle >> v.last;
    }
    CHECK(!words.fail()) << path << ": " << line;
  }
  return golden;
}

UniformNumbers::UniformNumbers(const std::string& name) {
  for (const char c : name) seed_ = seed_ * 31 + static_cast<unsigned char>(c);
}

double UniformNumbers::operator[](uint32_t index) const {
  uint32_t x = seed_ + index * 0x9E3779B1u;
  x = (x ^ (x >> 15)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  x ^= x >> 16;
  return x / 2147483648.0 - 1.0;
}

void FillVariables(const VariableLayout& layout, std::vector<double>* flat) {
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const VariableSpec& variable = layout.variables()[i];
    const std::vector<int64_t>& shape = variable.shape;
    double centre = 0.0, radius = 0.0;
    if (absl::EndsWith(variable.name, "depthwise_weights")) {
      radius = std::sqrt(6.0 / (shape[0] * shape[1]));
    } else if (absl::EndsWith(variable.name, "/weights") ||
               absl::EndsWith(variable.name, "/pointwise_weights")) {
      radius = std::sqrt(6.0 / (shape[0] * shape[1] * shape[2]));
    } else if (absl::EndsWith(variable.name, "/biases")) {
      radius = 0.1;
    } else if (absl::EndsWith(variable.name, "/gamma")) {
      centre = 1.0, radius = 0.3;
    } else if (absl::EndsWith(variable.name, "/beta")) {
      centre = 0.3, radius = 0.3;
    } else if (absl::EndsWith(variable.name, "/moving_mean")) {
      radius = 0.2;
    } else {
      centre = 1.0, radius = 0.5;
    }
    const UniformNumbers numbers(variable.name);
    for (int64_t k = 0; k < layout.num_elements(i); ++k) {
      (*flat)[layout.offset(i) + k] = centre + radius * numbers[k];
    }
  }
}

}  // namespace pushpull
