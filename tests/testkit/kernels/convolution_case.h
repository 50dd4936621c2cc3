// A dense or depthwise convolution with random operands that runs forward and backward with any
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
  bool add = false;  // add to another gradient of the input
  bool input_gradient = true;
  double scale = 1;  // of the tensors and the weights
};

// Prints the name in test messages.
void PrintTo(const ConvolutionCase& test, std::ostream* out);

// Small and awkward shapes with every kind of input, norm and padding. Names are unique.
std::vector<ConvolutionCase> DenseCases();
std::vector<ConvolutionCase> DepthwiseCases();
// Adds a case whose name is made from its shape.
void AddCase(ConvolutionCase test, std::vector<ConvolutionCase>* cases);

struct NamedTensor {
  std::string name;
  std::vector<double> values;
};

// Runs the forward and the backward call and returns everything that they write. The operands are
// rounded to Stored first, so that operators in double compute the same as those in a narrower
// type; variables are always floats. T is float, double or Bfloat16. Stored is T, or float or
// Bfloat16 if T is double.
template <typename T, typename Stored = T>
std::vector<NamedTensor> RunCase(const ConvolutionCase& test, Operators<T>* operators,
                                 const OperandMemory& memory = HostOperands());

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_CONVOLUTION_CASE_H_
