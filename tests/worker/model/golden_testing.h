// Compares the training and inference steps of a network with a file in tests/golden.
#ifndef PUSHPULL_TESTS_WORKER_MODEL_GOLDEN_TESTING_H_
#define PUSHPULL_TESTS_WORKER_MODEL_GOLDEN_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/variable_layout.h"
#include "tests/testkit/model/test_network.h"

namespace pushpull {

// Entries of a variable's gradient, or of a batch statistic.
struct GoldenVariable {
  double norm, first, middle, last;
};

struct Golden {
  double loss = 0.0;
  double evaluated_loss = 0.0;
  std::map<std::string, GoldenVariable> variables;
};

// Reads tests/golden/NAME.txt. CHECKs that it exists and has the right format.
Golden ReadGolden(const std::string& name);

// The formula that the scripts in tests/reference use: values in [-1, 1), a pure function of name
// and index.
class UniformNumbers {
 public:
  explicit UniformNumbers(const std::string& name);
  double operator[](uint32_t index) const;

 private:
  uint32_t seed_ = 0;
};

// Gives each variable the values that the scripts give it. `flat` has layout.total_elements().
void FillVariables(const VariableLayout& layout, std::vector<double>* flat);

// With the reference operators in double, the tolerance only has to cover a different order of
// summation.
inline constexpr double kDoubleTolerance = 1e-8;

// Sets the network's variables by FillVariables, runs a step on the batch, and expects the loss,
// the evaluated loss, and the gradients and statistics of tests/golden/NAME.txt, which names
// exactly the network's variables. `tolerance` is relative to the loss, or to the norm of a
// variable.
template <typename T>
void ExpectGolden(const std::string& name, const ImageBatch<T>& batch, double tolerance,
                  TestNetwork<T>* network) {
  const Golden golden = ReadGolden(name);
  TestNetwork<T>& test = *network;
  std::vector<double> variables(test.variables.size());
  FillVariables(test.layout, &variables);
  test.variables.assign(variables.begin(), variables.end());
  EXPECT_NEAR(test.Step(batch).loss, golden.loss, tolerance * golden.loss);
  EXPECT_NEAR(test.network->Evaluate(test.variables, batch, 1)->loss, golden.evaluated_loss,
              tolerance * golden.evaluated_loss);
  ASSERT_EQ(static_cast<int64_t>(golden.variables.size()), test.layout.num_variables());
  for (const auto& [variable, expected] : golden.variables) {
    const std::vector<T> got = test.Part(test.gradient, variable);
    double norm = 0.0;
    for (const double value : got) norm += value * value;
    const double allowed = tolerance * std::max(expected.norm, 1e-3);
    EXPECT_NEAR(std::sqrt(norm), expected.norm, allowed) << variable;
    EXPECT_NEAR(got.front(), expected.first, allowed) << variable;
    EXPECT_NEAR(got[got.size() / 2], expected.middle, allowed) << variable;
    EXPECT_NEAR(got.back(), expected.last, allowed) << variable;
  }
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_MODEL_GOLDEN_TESTING_H_
