// One convolution, dense or depthwise, with random operands, run forward and backward through any
// operators.
#ifndef PUSHPULL_TESTS_TESTKIT_KERNELS_CONVOLUTION_CASE_H_
#define PUSHPULL_TESTS_TESTKIT_KERNELS_CONVOLUTION_CASE_H_

#include <ostream>
#include <string>
#include <vector>

#include "kernels/operators.h"
#include "tests/testkit/kernels/operand_memory.h"

namespace pushpull {

struct ConvolutionCase {
  enum class Kind { kDense, kDepthwise };
  enum class Input { kPlain, kNormRelu6, kNormSkip, kSkip, kRelu, kApplied };
  enum class Norm { kNone, kBatch, kFrozen };

  std::string name = {};
  Kind kind = Kind::kDense;
  ConvolutionShape shape = {};
  Input input = Input::kNormRelu6;
  Norm output = Norm::kBatch;
  bool bias = false;
  bool add = false;  // another gradient reaches the input
  bool input_gradient = true;
};

// Names in the messages of tests.
void PrintTo(const ConvolutionCase& test, std::ostream* out);

// Small and awkward shapes, every kind of input, norm and padding; names are unique.
std::vector<ConvolutionCase> DenseCases();
std::vector<ConvolutionCase> DepthwiseCases();
// Adds a case under a name made of its shape.
void AddCase(ConvolutionCase test, std::vector<ConvolutionCase>* cases);

struct NamedTensor {
  std::string name;
  std::vector<double> values;
};

// Everything the two calls write. The operands are rounded to Stored first, so that operators in
// double compute what those in a narrower type have to; variables are always floats. T: float,
// double, Bfloat16; Stored: T, or float or Bfloat16 with T double.
template <typename T, typename Stored = T>
std::vector<NamedTensor> RunCase(const ConvolutionCase& test, Operators<T>* operators,
                                 const OperandMemory& memory = HostOperands());

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_CONVOLUTION_CASE_H_
