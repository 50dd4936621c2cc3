// Exports random networks, which have every operator and every activation in any order, and runs
// them in the reference interpreter.
//
// With PUSHPULL_ONNX_CASES=FOLDER the test writes the models there, each with an input and the
// outputs by the reference operators, for tests/reference/onnx_random_graphs.py, which runs them in
// other programs.
#include <cmath>
#include <cstdlib>
#include <set>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/base/file_system.h"
#include "tests/testkit/model/random_graph.h"
#include "tests/testkit/onnx/onnx_interpreter.h"
#include "tests/worker/export/export_testing.h"
#include "tests/worker/export/onnx_testing.h"
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

std::vector<float> MakeImage(const NetworkSpec& network) {
  std::vector<float> image(network.input.num_elements());
  for (size_t i = 0; i < image.size(); ++i) image[i] = std::sin(0.37f * static_cast<float>(i));
  return image;
}

// Writes the model and a JSON object with `image`, [H, W, C], and `logits`.
void WriteCase(const std::string& folder, const InferenceModel& model,
               const onnx::ModelProto& exported) {
  const std::vector<float> image = MakeImage(model.network);
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

// A graph has at most twelve layers of float32 sums, each of at most a hundred terms of about 1.
TEST(OnnxRandomGraphTest, EveryGraphComputesTheSame) {
  for (uint64_t seed = 0; seed < kGraphs; ++seed) {
    SCOPED_TRACE(seed);
    const InferenceModel model = MakeRandomModel(seed);
    const FeatureShape& input = model.network.input;
    const std::vector<float> image = MakeImage(model.network);
    const auto outputs =
        RunOnnx(BuildRawHeadsModel(model),
                {{kRawInput, PlanesOf(input.height, input.width, input.channels, image)}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ExpectEachClose("logits", outputs->at(kLogits).values,
                    Infer(model.network, model.values, image), 3e-6);
  }
}

}  // namespace
}  // namespace pushpull
