// Tested by tests/worker/export/onnx_execution_test.cc.
// Tested by tests/worker/export/onnx_model_test.cc.
#include "worker/export/onnx_detection.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "kernels/detection/anchors.h"
#include "worker/export/onnx_heads.h"

namespace pushpull {
namespace {

using Integers = std::vector<int64_t>;

constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kNotKept = -kLargest;  // replaces the score of a box that is no detection

class DetectionNodes {
 public:
  DetectionNodes(const NetworkSpec& network, OnnxGraph* graph)
      : input_(network.input),
        spec_(*network.detection),
        anchors_(spec_.num_anchors()),
        graph_(*graph) {}

  void Add(const std::vector<std::string>& nodes, const std::string& content_size) {
    const JoinedHeads heads =
        AddJoinedHeads(spec_, nodes, {Name("box_codes"), Name("logits")}, &graph_);
    boxes_ = Decode(heads.box_codes);
    const std::string scores = ConvertScores(heads.logits);
    // The suppression compares boxes as they are decoded. The result has them clipped to the image.
    clipped_ = ClipToImage(content_size);
    AddTopDetections(MarkWithoutArea(Suppress(ScoresByClass(scores))));
    graph_.AddOutput(boxes_, onnx::TensorProto::FLOAT, {"N", anchors_, int64_t{kBoxCodeSize}});
    graph_.AddOutput(scores, onnx::TensorProto::FLOAT,
                     {"N", anchors_, int64_t{spec_.num_classes + 1}});
  }

 private:
  std::string Name(const std::string& name) const { return "post_processing/" + name; }
  std::string Node(absl::string_view operation, const std::string& output,
                   const std::vector<std::string>& inputs,
                   const std::vector<OnnxAttribute>& attributes = {}) {
    return graph_.AddNode(operation, Name(output), inputs, attributes);
  }
  // The next three return a constant, which they add to the graph on the first call with its name.
  std::string Float(const std::string& name, float value) {
    if (constants_.insert(name).second) graph_.AddFloats(Name(name), {}, {&value, 1});
    return Name(name);
  }
  std::string Int(const std::string& name, int64_t value) {
    if (constants_.insert(name).second) graph_.AddInts(Name(name), {}, {&value, 1});
    return Name(name);
  }
  std::string Ints(const std::string& name, const Integers& values) {
    if (constants_.insert(name).second) {
      graph_.AddInts(Name(name), {static_cast<int64_t>(values.size())}, values);
    }
    return Name(name);
  }

  // Adds an [A, 2] constant. value(anchor) returns the vertical and the horizontal number.
  template <typename Value>
  std::string PerAnchor(const std::string& name, const std::vector<BoundingBox>& anchors,
                        const Value& value) {
    std::vector<float> values;
    for (const BoundingBox& anchor : anchors) {
      const auto [vertical, horizontal] = value(anchor);
      values.push_back(static_cast<float>(vertical));
      values.push_back(static_cast<float>(horizontal));
    }
    return graph_.AddFloats(Name(name), {anchors_, 2}, values);
  }

  // Does what kernels/detection/box_coder.h does. The constants that depend only on the anchors and
  // the scale factors are computed here.
  std::string Decode(const std::string& codes) {
    const std::vector<BoundingBox> anchors = GenerateAnchors(spec_.anchors, spec_.heads);
    CHECK_EQ(static_cast<int64_t>(anchors.size()), anchors_);
    const FasterRcnnBoxCoderSpec& coder = spec_.box_coder;
    const std::string centers = PerAnchor("anchor_centers", anchors, [](const BoundingBox& a) {
      return std::pair(0.5 * (double{a.ymin} + a.ymax), 0.5 * (double{a.xmin} + a.xmax));
    });
    const std::string steps = PerAnchor("anchor_steps", anchors, [&](const BoundingBox& a) {
      return std::pair((double{a.ymax} - a.ymin) / coder.y_scale,
                       (double{a.xmax} - a.xmin) / coder.x_scale);
    });
    const std::string halves = PerAnchor("anchor_half_sizes", anchors, [](const BoundingBox& a) {
      return std::pair(0.5 * (double{a.ymax} - a.ymin), 0.5 * (double{a.xmax} - a.xmin));
    });
    const float size_scales[] = {coder.height_scale, coder.width_scale};
    const std::string scales = graph_.AddFloats(Name("size_scales"), {2}, size_scales);

    const std::vector<std::string> parts =
        graph_.AddNodeOfSeveral("Split", {Name("center_codes"), Name("size_codes")},
                                {codes, Ints("two_and_two", {2, 2})}, {{"axis", int64_t{2}}});
    const std::string center =
        Node("Add", "center", {Node("Mul", "center_offset", {parts[0], steps}), centers});
    const std::string growth =
        Node("Exp", "growth", {Node("Div", "log_growth", {parts[1], scales})});
    const std::string half = Node("Mul", "half_size", {growth, halves});
    return graph_.AddNode(
        "Concat", "raw_detection_boxes",
        {Node("Sub", "top_left", {center, half}), Node("Add", "bottom_right", {center, half})},
        {{"axis", int64_t{2}}});
  }

  // Clips the boxes to the image and converts them to fractions of the image without padding. The
  // image lies in the upper left corner of the input, so the position of its lower right corner is
  // also the divisor.
  std::string ClipToImage(const std::string& content_size) {
    const std::string name = "boxes_in_image";
    if (content_size.empty()) {
      return Node("Clip", name, {boxes_, Float("zero", 0), Float("one", 1)});
    }
    const float sizes[] = {static_cast<float>(input_.height), static_cast<float>(input_.width)};
    const std::string input_size = graph_.AddFloats(Name("input_size"), {2}, sizes);
    const std::string share = Node("Div", "image_share", {content_size, input_size});
    const std::string window =
        Node("Concat", "window_of_corners", {share, share}, {{"axis", int64_t{0}}});
    const std::string from_zero = Node("Max", "boxes_from_zero", {boxes_, Float("zero", 0)});
    return Node("Div", name, {Node("Min", "boxes_in_window", {from_zero, window}), window});
  }

  std::string ConvertScores(std::string logits) {
    const PostProcessingSpec& post = spec_.post_processing;
    if (post.logit_scale != 1.0f) {
      logits = Node("Div", "scaled_logits", {logits, Float("logit_scale", post.logit_scale)});
    }
    const std::string name = "raw_detection_scores";
    switch (post.score_converter) {
      case PostProcessingSpec::ScoreConverter::kIdentity:
        break;
      case PostProcessingSpec::ScoreConverter::kSigmoid:
        return graph_.AddNode("Sigmoid", name, {logits});
      case PostProcessingSpec::ScoreConverter::kSoftmax:
        return graph_.AddNode("Softmax", name, {logits}, {{"axis", int64_t{-1}}});
    }
    return graph_.AddNode("Identity", name, {logits});
  }

  // Returns the scores as [N, C, A], without the background. Infinite scores and the scores of
  // boxes that are not finite become kNotKept. The suppression drops these, and NaN and minus
  // infinity too, because neither is above the threshold.
  std::string ScoresByClass(const std::string& scores) {
    const std::string classes =
        Node("Slice", "class_scores",
             {scores, Ints("first_class", {1}), Ints("behind_last_class", {spec_.num_classes + 1}),
              Ints("class_axis", {2})});
    std::string by_class =
        Node("Transpose", "scores_by_class", {classes}, {{"perm", Integers{0, 2, 1}}});
    const std::string not_kept = Float("not_kept", kNotKept);
    // The other converters give no infinite scores, and no comparison holds for a NaN.
    if (spec_.post_processing.score_converter == PostProcessingSpec::ScoreConverter::kIdentity) {
      const std::string is_finite =
          Node("LessOrEqual", "score_is_finite", {by_class, Float("largest", kLargest)});
      by_class = Node("Where", "finite_scores_by_class", {is_finite, by_class, not_kept});
    }
    const std::string finite = AllOf(
        "box_is_finite", Node("LessOrEqual", "coordinate_is_finite",
                              {Node("Abs", "magnitudes", {boxes_}), Float("largest", kLargest)}));
    return Node("Where", "finite_scores", {finite, by_class, not_kept});
  }

  // Reduces booleans [N, A, any] to [N, 1, A] with a logical and.
  std::string AllOf(const std::string& name, const std::string& values) {
    const std::string numbers = Node("Cast", name + "_numbers", {values}, {{"to", kOnnxFloat}});
    const std::string least = Node("ReduceMin", name + "_least", {numbers},
                                   {{"axes", Integers{2}}, {"keepdims", int64_t{1}}});
    const std::string row =
        Node("Transpose", name + "_row", {least}, {{"perm", Integers{0, 2, 1}}});
    return Node("Greater", name, {row, Float("zero", 0)});
  }

  // Returns [N, C, A]: the score of each box that the suppression keeps, and kNotKept for the
  // others.
  std::string Suppress(const std::string& scores) {
    const PostProcessingSpec& post = spec_.post_processing;
    const std::string kept =
        Node("NonMaxSuppression", "kept",
             {boxes_, scores, Int("max_per_class", post.max_detections_per_class),
              Float("iou_threshold", post.iou_threshold),
              Float("score_threshold", post.score_threshold)});
    const std::string kept_scores = Node("GatherND", "kept_scores", {scores, kept});
    const std::string shape = Node("Shape", "scores_shape", {scores});
    const std::string nothing =
        Node("Expand", "nothing_kept", {Float("not_kept", kNotKept), shape});
    return Node("ScatterND", "suppressed_scores", {nothing, kept, kept_scores});
  }

  // Replaces the scores of boxes that have no area within the image by kNotKept.
  std::string MarkWithoutArea(const std::string& scores) {
    const std::vector<std::string> corners =
        graph_.AddNodeOfSeveral("Split", {Name("clipped_top_left"), Name("clipped_bottom_right")},
                                {clipped_, Ints("two_and_two", {2, 2})}, {{"axis", int64_t{2}}});
    const std::string has_area =
        AllOf("box_has_area", Node("Greater", "side_has_length", {corners[1], corners[0]}));
    return Node("Where", "final_scores", {has_area, scores, Float("not_kept", kNotKept)});
  }

  // Selects the max_total_detections best scores over all classes and adds the outputs.
  void AddTopDetections(const std::string& scores) {
    const int64_t rows = spec_.post_processing.max_total_detections;
    std::string candidates = Node("Reshape", "candidates", {scores, Ints("flat_shape", {0, -1})});
    if (const int64_t missing = rows - spec_.num_classes * anchors_; missing > 0) {
      candidates =
          Node("Pad", "padded_candidates",
               {candidates, Ints("padding", {0, 0, 0, missing}), Float("not_kept", kNotKept)});
    }
    const std::vector<std::string> top =
        graph_.AddNodeOfSeveral("TopK", {Name("top_scores"), Name("top")},
                                {candidates, Ints("max_total", {rows})}, {{"axis", int64_t{1}}});
    const std::string valid =
        Node("Greater", "is_detection", {top[0], Float("not_kept", kNotKept)});
    // The index of a candidate is class * A + anchor.
    const std::string count = Int("num_anchors", anchors_);
    const std::string label =
        Node("Where", "labels",
             {valid, Node("Div", "top_classes", {top[1], count}), Int("no_label", 0)});
    const std::string anchor = Node("Mod", "top_anchors", {top[1], count});

    const std::string index = Node("Unsqueeze", "anchor_indices", {anchor, Ints("last_axis", {2})});
    const std::string boxes =
        Node("GatherND", "top_boxes", {clipped_, index}, {{"batch_dims", int64_t{1}}});
    const std::string valid_box =
        Node("Unsqueeze", "is_detection_box", {valid, Ints("last_axis", {2})});
    const std::string zero = Float("zero", 0);
    Output("Where", "detection_boxes", {valid_box, boxes, zero},
           {"N", rows, int64_t{kBoxCodeSize}});
    Output("Where", "detection_scores", {valid, top[0], zero}, {"N", rows});
    const std::string labels = Node("Cast", "label_numbers", {label}, {{"to", kOnnxFloat}});
    Output("Add", "detection_classes", {labels, Float("one", 1)}, {"N", rows});
    const std::string counted = Node("Cast", "detection_counts", {valid}, {{"to", kOnnxFloat}});
    Output("ReduceSum", "num_detections", {counted, Ints("row_axis", {1})}, {"N"},
           {{"keepdims", int64_t{0}}});
  }

  void Output(absl::string_view operation, const std::string& name,
              const std::vector<std::string>& inputs, const std::vector<OnnxDimension>& shape,
              const std::vector<OnnxAttribute>& attributes = {}) {
    graph_.AddOutput(graph_.AddNode(operation, name, inputs, attributes), onnx::TensorProto::FLOAT,
                     shape);
  }

  const FeatureShape& input_;
  const DetectionSpec& spec_;
  const int64_t anchors_;
  OnnxGraph& graph_;
  absl::flat_hash_set<std::string> constants_;
  std::string boxes_;    // [N, A, 4] as decoded, fractions of the network's input
  std::string clipped_;  // [N, A, 4] clipped to the image, fractions of the image
};

}  // namespace

void AddDetection(const NetworkSpec& network, const std::vector<std::string>& nodes,
                  const std::string& content_size, OnnxGraph* graph) {
  CHECK(network.detection.has_value());
  DetectionNodes(network, graph).Add(nodes, content_size);
}

}  // namespace pushpull
