// Reference implementations of every optimizer's rule: one in float that rounds like the apply
// pass, and one in double that follows the papers, TensorFlow and PyTorch.
#ifndef PUSHPULL_TESTS_TESTKIT_OPTIMIZER_REFERENCES_H_
#define PUSHPULL_TESTS_TESTKIT_OPTIMIZER_REFERENCES_H_

#include <string>
#include <vector>

namespace pushpull {

// The inputs of an update that are the same for all elements of a variable.
struct ReferenceStep {
  double t = 1;
  double rate = 0;
  float multiplier = 1;   // of the rate, in in_float; the rate of in_double is already multiplied
  bool is_matrix = true;  // the variable has at least two dimensions
  double ratio = 1;       // ||w|| / ||u|| of the variable, for rules that need norms
};

inline constexpr char kOuterRate[] = "0.7";

struct OptimizerReference {
  std::string name;    // used in test names
  std::string field;   // name in the oneof of config::Optimizer; or see `outer`
  std::string config;  // fields of the message except learning_rate, with the numbers of the rules
  std::vector<std::string> slots;
  float first_slot_initial_value;
  // Both update the slots and return the new weight.
  float (*in_float)(const ReferenceStep& step, float w, float g, float* slots);
  double (*in_double)(const ReferenceStep& step, double w, double g, double* slots);
  // Returns u for a rule that needs norms, using only t and is_matrix of the step. Null for other
  // rules.
  double (*update)(const ReferenceStep& step, double w, double g, double* slots) = nullptr;
  // The rule is one of config::OuterOptimizer, whose learning rate is kOuterRate.
  bool outer = false;
};

const std::vector<OptimizerReference>& OptimizerReferences();
const OptimizerReference& ReferenceNamed(const std::string& name);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_OPTIMIZER_REFERENCES_H_
