#include "scripts/bench/step/first_losses.h"

#include <fstream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

class StartFile {
 public:
  void Add(const std::string& name, const std::vector<int64_t>& shape, const float* values,
           int64_t count) {
    tensors_.push_back({{"name", name}, {"shape", shape}});
    parts_.push_back({values, count});
  }

  absl::Status Write(const NetworkSpec& network, const Descent& descent,
                     const std::string& path) const {
    nlohmann::json header;
    header["size"] = network.input.height;
    header["classes"] = network.num_classes;
    header["learning_rate"] = descent.learning_rate;
    header["momentum"] = descent.momentum;
    header["tensors"] = tensors_;
    std::ofstream file(path, std::ios::binary);
    file << header.dump() << "\n";
    for (const Part& part : parts_) {
      file.write(reinterpret_cast<const char*>(part.values),
                 static_cast<std::streamsize>(part.count * sizeof(float)));
    }
    file.close();
    if (file.fail()) return absl::DataLossError(absl::StrCat("cannot write ", path));
    return absl::OkStatus();
  }

 private:
  struct Part {
    const float* values;
    int64_t count;
  };
  std::vector<nlohmann::json> tensors_;
  std::vector<Part> parts_;
};

}  // namespace

absl::StatusOr<std::vector<double>> FirstLosses(const BenchNetwork& network, const Descent& descent,
                                                int steps, DeviceStep* step) {
  std::vector<float> variables = InitialVariables(network);
  std::vector<float> gradient(variables.size());
  std::vector<float> velocity(variables.size(), 0.0f);
  const float learning_rate = static_cast<float>(descent.learning_rate);
  const float momentum = static_cast<float>(descent.momentum);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) {
    PP_RETURN_IF_ERROR(step->SetVariables(variables));
    PP_ASSIGN_OR_RETURN(const double loss, step->Step(absl::MakeSpan(gradient)));
    losses.push_back(loss);
    for (int64_t v = 0; v < network.layout.num_variables(); ++v) {
      // Moving statistics have no gradient.
      if (network.layout.variables()[v].kind != VariableKind::kTrainable) continue;
      const int64_t first = network.layout.offset(v);
      for (int64_t e = first; e < first + network.layout.num_elements(v); ++e) {
        velocity[e] = momentum * velocity[e] + gradient[e];
        variables[e] -= learning_rate * velocity[e];
      }
    }
  }
  return losses;
}

absl::Status WriteStart(const BenchNetwork& network, const Descent& descent,
                        const BenchBatch& batch, const std::string& path) {
  const std::vector<float> variables = InitialVariables(network);
  StartFile file;
  for (int64_t v = 0; v < network.layout.num_variables(); ++v) {
    const VariableSpec& variable = network.layout.variables()[v];
    file.Add(variable.name, variable.shape, variables.data() + network.layout.offset(v),
             network.layout.num_elements(v));
  }
  const FeatureShape& input = network.spec.input;
  file.Add("images", {batch.samples, input.height, input.width, input.channels},
           batch.images.data(), static_cast<int64_t>(batch.images.size()));
  std::vector<float> boxes, labels;
  if (network.spec.detection.has_value()) {
    for (const LabeledBox& object : batch.objects) {
      boxes.insert(boxes.end(),
                   {object.box.ymin, object.box.xmin, object.box.ymax, object.box.xmax});
      labels.push_back(static_cast<float>(object.label));
    }
    file.Add("boxes", {batch.samples, BenchBatch::kObjectsPerImage, 4}, boxes.data(),
             static_cast<int64_t>(boxes.size()));
    file.Add("box_labels", {batch.samples, BenchBatch::kObjectsPerImage}, labels.data(),
             static_cast<int64_t>(labels.size()));
  } else {
    labels.assign(batch.labels.begin(), batch.labels.end());
    file.Add("labels", {batch.samples}, labels.data(), static_cast<int64_t>(labels.size()));
  }
  return file.Write(network.spec, descent, path);
}

}  // namespace pushpull
