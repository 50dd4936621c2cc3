#include "worker/export/onnx_preprocessing.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

using Integers = std::vector<int64_t>;

constexpr float kScale = 2.0f / 255.0f;
constexpr float kOffset = 1.0f;
constexpr int64_t kInt64 = onnx::TensorProto::INT64;

class PreprocessingNodes {
 public:
  PreprocessingNodes(const NetworkSpec& network, OnnxGraph* graph)
      : network_(network), graph_(*graph) {}

  OnnxInput Add(const std::string& name) {
    const FeatureShape& input = network_.input;
    const std::string image =
        graph_.AddInput(name, onnx::TensorProto::UINT8, {"N", "H", "W", int64_t{input.channels}});
    const std::string numbers = Node("Cast", "numbers", {image}, {{"to", kOnnxFloat}});
    const std::string planes =
        Node("Transpose", "planes", {numbers}, {{"perm", Integers{0, 3, 1, 2}}});
    const std::string shape = Node("Shape", "shape", {planes});
    if (!network_.keep_aspect_ratio.has_value()) {
      const std::string size = Ints("height_and_width", {input.height, input.width});
      return {Normalize(Resize(planes, shape, size), "image"), ""};
    }
    const std::string content_size = AddScaledSize(*network_.keep_aspect_ratio, shape);
    const std::string size = Node("Cast", "height_and_width", {content_size}, {{"to", kInt64}});
    const std::string content = Normalize(Resize(planes, shape, size), "content");
    return {Pad(*network_.keep_aspect_ratio, content, size), content_size};
  }

 private:
  std::string Name(const std::string& name) const { return "preprocessing/" + name; }
  std::string Node(absl::string_view operation, const std::string& output,
                   const std::vector<std::string>& inputs,
                   const std::vector<OnnxAttribute>& attributes = {}) {
    return graph_.AddNode(operation, Name(output), inputs, attributes);
  }
  std::string Float(const std::string& name, float value) {
    return graph_.AddFloats(Name(name), {}, {&value, 1});
  }
  std::string Ints(const std::string& name, const Integers& values) {
    return graph_.AddInts(Name(name), {static_cast<int64_t>(values.size())}, values);
  }

  // Computes ScaledSize of common/model/image_resize.h in the graph. The float32 operations and
  // their order are the same, so both round to the same pixel. float32 represents the sizes
  // exactly.
  std::string AddScaledSize(const AspectRatioResize& resize, const std::string& shape) {
    const std::string image = Node(
        "Slice", "image_shape", {shape, Ints("height_axis", {2}), Ints("behind_width_axis", {4})});
    const std::string size = Node("Cast", "image_size", {image}, {{"to", kOnnxFloat}});
    const std::vector<OnnxAttribute> of_both = {{"axes", Integers{0}}, {"keepdims", int64_t{1}}};
    const std::string shorter = Node("ReduceMin", "shorter_side", {size}, of_both);
    const std::string longer = Node("ReduceMax", "longer_side", {size}, of_both);
    const std::string least = Float("one_pixel", 1);
    const std::string most = Float("max_dimension", static_cast<float>(resize.max_dimension));
    const auto scaled = [&](const std::string& name, const std::string& to,
                            const std::string& side) {
      const std::string factor = Node("Div", name + "_factor", {to, side});
      const std::string exact = Node("Mul", name + "_exact", {size, factor});
      return Node("Max", name, {Node("Round", name + "_rounded", {exact}), least});
    };
    const std::string large =
        scaled("large", Float("min_dimension", static_cast<float>(resize.min_dimension)), shorter);
    const std::string largest = Node("ReduceMax", "large_longer_side", {large}, of_both);
    const std::string too_large = Node("Greater", "is_too_large", {largest, most});
    return Node("Where", "content_size", {too_large, scaled("small", most, longer), large});
  }

  // `size` is the new height and width, [2].
  std::string Resize(const std::string& planes, const std::string& shape, const std::string& size) {
    const std::string outer =
        Node("Slice", "outer", {shape, Ints("slice_begin", {0}), Ints("slice_end", {2})});
    const std::string sizes = Node("Concat", "sizes", {outer, size}, {{"axis", int64_t{0}}});
    return Node("Resize", "resized", {planes, "", "", sizes},
                {{"coordinate_transformation_mode", std::string("asymmetric")},
                 {"mode", std::string("linear")}});
  }

  std::string Normalize(const std::string& pixels, const std::string& name) {
    const std::string scaled = Node("Mul", "scaled", {pixels, Float("two_by_255", kScale)});
    return Node("Sub", name, {scaled, Float("one", kOffset)});
  }

  // Pads below and on the right. It works on normalized values, so that neither the image nor the
  // padding is rounded twice.
  std::string Pad(const AspectRatioResize& resize, const std::string& content,
                  const std::string& size) {
    const FeatureShape& input = network_.input;
    const std::string rest =
        Node("Sub", "rest", {Ints("input_size", {input.height, input.width}), size});
    const std::string pads =
        Node("Concat", "pads", {Ints("no_pads", {0, 0, 0, 0, 0, 0}), rest}, {{"axis", int64_t{0}}});
    std::vector<float> values;  // one for all channels, or one per channel
    for (int c = 0; c < input.channels; ++c) {
      values.push_back(resize.pad_value[c] * kScale - kOffset);
    }
    if (std::count(values.begin(), values.end(), values[0]) == input.channels) values.resize(1);

    std::vector<std::string> parts = {content};
    if (values.size() > 1) {
      parts.clear();
      for (size_t c = 0; c < values.size(); ++c) {
        parts.push_back(Name(absl::StrCat("content_", c)));
      }
      parts = graph_.AddNodeOfSeveral("Split", parts, {content}, {{"axis", int64_t{1}}});
    }
    for (size_t c = 0; c < values.size(); ++c) {
      parts[c] = Node("Pad", absl::StrCat("padded_", c),
                      {parts[c], pads, Float(absl::StrCat("pad_value_", c), values[c])});
    }
    const std::string padded =
        parts.size() == 1 ? parts[0] : Node("Concat", "padded", parts, {{"axis", int64_t{1}}});
    // Tells the runtime the shape, because it cannot infer that image and padding always have it.
    return Node("Reshape", "image",
                {padded, Ints("input_shape", {0, input.channels, input.height, input.width})});
  }

  const NetworkSpec& network_;
  OnnxGraph& graph_;
};

}  // namespace

OnnxInput AddPreprocessing(const std::string& name, const NetworkSpec& network, OnnxGraph* graph) {
  return PreprocessingNodes(network, graph).Add(name);
}

}  // namespace pushpull
