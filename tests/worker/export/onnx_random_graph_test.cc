// Exports random networks, which have every operator and every activation in any order.
//
// A runtime for ONNX has to say whether the models compute the same. With
// PUSHPULL_ONNX_CASES=FOLDER the test writes them there, each with an input and the outputs by the
// reference operators, for tests/reference/onnx_random_graphs.py.
#include <cmath>
#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/base/file_system.h"
#include "tests/worker/export/export_testing.h"
#include "tests/worker/model/random_graph.h"
#include "worker/export/onnx_model.h"

namespace pushpull {
namespace {

constexpr uint64_t kGraphs = 200;

InferenceModel MakeRandomModel(uint64_t seed) {
  NetworkSpec network = RandomGraph(seed).Build();
  auto layout = VariableLayout::Create(network.variables);
  EXPECT_TRUE(layout.ok()) << layout.status();
  std::vector<float> values = RandomValues(*layout, seed);
  return {std::move(network), *std::move(layout), std::move(values), seed, false, "random"};
}

// Writes the model and a JSON object with `image`, [H, W, C], and `logits`.
void WriteCase(const std::string& folder, const InferenceModel& model,
               const onnx::ModelProto& exported) {
  std::vector<float> image(model.network.input.num_elements());
  for (size_t i = 0; i < image.size(); ++i) image[i] = std::sin(0.37f * static_cast<float>(i));
  const nlohmann::json expected = {{"image", image},
                                   {"logits", Infer(model.network, model.values, image)}};
  PosixFileSystem files;
  const std::string name = JoinPath(folder, absl::StrCat(model.step));
  ASSERT_TRUE(WriteFileAtomically(files, name + ".onnx", exported.SerializeAsString()).ok());
  ASSERT_TRUE(WriteFileAtomically(files, name + ".json", expected.dump()).ok());
}

TEST(OnnxRandomGraphTest, EveryGraphIsWellFormed) {
  const char* const folder = std::getenv("PUSHPULL_ONNX_CASES");
  std::set<std::string> operators;
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    SCOPED_TRACE(seed);
    const InferenceModel model = MakeRandomModel(seed);
    const onnx::ModelProto exported = BuildRawHeadsModel(model);
    EXPECT_EQ(Faults(exported), "");
    for (const onnx::NodeProto& node : exported.graph().node()) operators.insert(node.op_type());
    if (folder != nullptr) WriteCase(folder, model, exported);
  }
  EXPECT_EQ(operators,
            (std::set<std::string>{"Add", "AveragePool", "Clip", "Concat", "Conv", "Flatten",
                                   "GlobalAveragePool", "HardSigmoid", "LeakyRelu", "MaxPool",
                                   "Mul", "Relu", "Resize", "Sigmoid", "Softmax"}));
}

}  // namespace
}  // namespace pushpull
