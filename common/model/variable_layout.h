// The ordered list of variables that a model declares, and the position of each in one flat float32
// vector. Worker, server, checkpoint, optimizer slots and EMA all use the same offsets.
#ifndef PUSHPULL_COMMON_MODEL_VARIABLE_LAYOUT_H_
#define PUSHPULL_COMMON_MODEL_VARIABLE_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

enum class VariableKind {
  kTrainable,  // receives a gradient; the optimizer updates it
  // Receives a batch statistic s; v += (1 - moving_average_decay) * (mean(s) - v), where mean(s)
  // is over the contributions to a step.
  kMovingStatistic,
};

struct Initializer {
  enum class Kind { kConstant, kTruncatedNormal, kRandomNormal, kUniform };
  Kind kind = Kind::kConstant;
  float mean = 0.0f;    // kConstant: the value; kUniform: the centre
  float stddev = 0.0f;  // kTruncatedNormal: before truncation at 2 stddev; kUniform: half the width
  bool operator==(const Initializer&) const = default;
};

struct VariableSpec {
  std::string name;            // TensorFlow's name, "MobilenetV2/Conv/weights"
  std::vector<int64_t> shape;  // C order; convolutions [h, w, in, out], depthwise [h, w, in, n]
  VariableKind kind = VariableKind::kTrainable;
  Initializer initializer;
  float l2_weight = 0.0f;                 // adds l2_weight * w to the gradient
  float gradient_multiplier = 1.0f;       // scales that gradient: train_config.bias_grad_multiplier
  float learning_rate_multiplier = 1.0f;  // scales the learning rate, and AdamW's decay with it
  bool frozen = false;                    // keeps the value that training starts with
  float moving_average_decay = 0.0f;      // kMovingStatistic only
  bool operator==(const VariableSpec&) const = default;
};

// A copyable value, immutable after Create; const methods are thread-safe.
class VariableLayout {
 public:
  // Each variable begins at a multiple of 16 elements (64 bytes). The padding between variables is
  // zero in every flat vector.
  static constexpr int64_t kAlignmentElements = 16;

  // Lays the variables out in the order given. INVALID_ARGUMENT: an empty or repeated name, a
  // dimension below 1, or a variable with which the flat vector would have 2^57 elements or more.
  static absl::StatusOr<VariableLayout> Create(std::vector<VariableSpec> variables);

  const std::vector<VariableSpec>& variables() const { return variables_; }
  int64_t num_variables() const { return static_cast<int64_t>(variables_.size()); }
  // Returns the position of the first element of variable i in the flat vector.
  int64_t offset(int64_t i) const { return offsets_[i]; }
  // Returns the number of elements of variable i, without padding.
  int64_t num_elements(int64_t i) const { return num_elements_[i]; }
  // Returns the number of elements of the flat vector, padding included.
  int64_t total_elements() const { return total_elements_; }
  // Returns the number of elements of all kTrainable variables, without padding.
  int64_t num_trainable_parameters() const;

  // Returns the index of the variable of that name, or nullopt.
  std::optional<int64_t> Find(absl::string_view name) const;
  // Returns the index of the variable whose padded range holds the element.
  int64_t VariableAt(int64_t element) const;

  // Hex SHA-256 over the name, shape and kind of all variables in order. Two layouts with equal
  // signatures give every element of the flat vector the same meaning.
  const std::string& signature() const { return signature_; }
  // Returns "" if the layouts agree in name, shape and kind of all variables. Otherwise returns a
  // sentence that names the first variable that differs and how.
  std::string DescribeDifference(const VariableLayout& other) const;

 private:
  VariableLayout() = default;

  std::vector<VariableSpec> variables_;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> num_elements_;
  absl::flat_hash_map<std::string, int64_t> index_;
  int64_t total_elements_ = 0;
  std::string signature_;
};

// Returns for example "[3, 3, 32, 1]".
std::string ShapeToString(const std::vector<int64_t>& shape);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_VARIABLE_LAYOUT_H_
