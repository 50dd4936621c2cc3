// Every optimizer's rule written a second time, for the tests: once in float with the rounding of
// the apply pass, once in double as the papers, TensorFlow and PyTorch write it.
#ifndef PUSHPULL_TESTS_PS_SERVER_STORE_OPTIMIZER_REFERENCES_H_
#define PUSHPULL_TESTS_PS_SERVER_STORE_OPTIMIZER_REFERENCES_H_

#include <string>
#include <vector>

namespace pushpull {

// What an update knows beside an element's own values.
struct ReferenceStep {
  double t = 1;
  double rate = 0;
  bool is_matrix = true;  // the variable has at least two dimensions
  double ratio = 1;       // ||w|| / ||u|| of the variable, for rules that need norms
};

struct OptimizerReference {
  std::string name;    // of the test
  std::string field;   // of the oneof in config::Optimizer
  std::string config;  // the message's fields but learning_rate; the rules below have its numbers
  std::vector<std::string> slots;
  float first_slot_initial_value;
  // Both change the slots and return the new weight.
  float (*in_float)(const ReferenceStep& step, float w, float g, float* slots);
  double (*in_double)(const ReferenceStep& step, double w, double g, double* slots);
  // u of a rule that needs norms, which only depends on the step's t and is_matrix; or null.
  double (*update)(const ReferenceStep& step, double w, double g, double* slots) = nullptr;
};

const std::vector<OptimizerReference>& OptimizerReferences();
const OptimizerReference& ReferenceNamed(const std::string& name);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_STORE_OPTIMIZER_REFERENCES_H_
