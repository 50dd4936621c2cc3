#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "tests/testkit/onnx/onnx_operators.h"

namespace pushpull {
namespace {

using Outputs = OnnxOperator::Outputs;

// Indices of slices of a tensor `data`: int64 [batch..., rows..., columns]. The first batch_dims
// axes are those of `data`, and each row of `columns` numbers indexes the axes after these.
class SliceIndices {
 public:
  static absl::StatusOr<SliceIndices> Create(const OnnxTensor& data, const OnnxTensor& indices,
                                             int64_t batch_dims) {
    PP_RETURN_IF_ERROR(RequireType(indices, kOnnxInt64));
    const int64_t rank = static_cast<int64_t>(data.shape.size());
    const int64_t own_rank = static_cast<int64_t>(indices.shape.size());
    PP_RETURN_IF_ERROR(
        Require(batch_dims >= 0 && batch_dims < own_rank && indices.shape.back() >= 1 &&
                    batch_dims + indices.shape.back() <= rank &&
                    std::equal(indices.shape.begin(), indices.shape.begin() + batch_dims,
                               data.shape.begin()),
                absl::StrCat(DescribeTensor(indices), " indexes ", DescribeTensor(data), " with ",
                             batch_dims, " axes in common")));
    SliceIndices result(data, indices, batch_dims);
    for (size_t i = 0; i < indices.values.size(); ++i) {
      const int64_t axis = batch_dims + static_cast<int64_t>(i) % indices.shape.back();
      // ONNX counts negative indices from the end. The exporter never means that.
      PP_RETURN_IF_ERROR(Require(
          indices.values[i] >= 0 && indices.values[i] < static_cast<double>(data.shape[axis]),
          absl::StrCat("index ", indices.values[i], " along axis ", axis, " of ",
                       DescribeTensor(data))));
    }
    return result;
  }

  // The shape of all slices together.
  OnnxShape shape() const {
    OnnxShape shape(indices_.shape.begin(), indices_.shape.end() - 1);
    shape.insert(shape.end(), data_.shape.begin() + batch_dims_ + indices_.shape.back(),
                 data_.shape.end());
    return shape;
  }
  int64_t count() const { return count_; }
  int64_t slice_size() const { return slice_size_; }
  // The position in `data` where slice i begins.
  int64_t begin(int64_t i) const {
    int64_t position = i / (count_ / batches_);
    for (int64_t k = 0; k < indices_.shape.back(); ++k) {
      position = position * data_.shape[batch_dims_ + k] +
                 static_cast<int64_t>(indices_.values[i * indices_.shape.back() + k]);
    }
    return position * slice_size_;
  }

 private:
  SliceIndices(const OnnxTensor& data, const OnnxTensor& indices, int64_t batch_dims)
      : data_(data),
        indices_(indices),
        batch_dims_(batch_dims),
        count_(NumElements(indices.shape) / indices.shape.back()) {
    for (int64_t axis = 0; axis < static_cast<int64_t>(data.shape.size()); ++axis) {
      if (axis < batch_dims) batches_ *= data.shape[axis];
      if (axis >= batch_dims + indices.shape.back()) slice_size_ *= data.shape[axis];
    }
  }

  const OnnxTensor& data_;
  const OnnxTensor& indices_;
  const int64_t batch_dims_;
  const int64_t count_;     // slices
  int64_t batches_ = 1;     // elements of the axes in common
  int64_t slice_size_ = 1;  // elements
};

Outputs GatherNd(const OnnxCall& call) {
  const OnnxTensor& data = call.In(0);
  PP_ASSIGN_OR_RETURN(
      const SliceIndices slices,
      SliceIndices::Create(data, call.In(1),
                           call.HasAttribute("batch_dims") ? call.Int("batch_dims") : 0));
  OnnxTensor out = {data.type, slices.shape(), {}};
  for (int64_t i = 0; i < slices.count(); ++i) {
    const auto from = data.values.begin() + slices.begin(i);
    out.values.insert(out.values.end(), from, from + slices.slice_size());
  }
  return OneOutput(std::move(out));
}

Outputs ScatterNd(const OnnxCall& call) {
  OnnxTensor out = call.In(0);
  const OnnxTensor& updates = call.In(2);
  PP_RETURN_IF_ERROR(RequireType(updates, out.type));
  PP_ASSIGN_OR_RETURN(const SliceIndices slices, SliceIndices::Create(call.In(0), call.In(1), 0));
  PP_RETURN_IF_ERROR(
      Require(updates.shape == slices.shape(), absl::StrCat("updates ", DescribeTensor(updates))));
  for (int64_t i = 0; i < slices.count(); ++i) {
    std::copy_n(updates.values.begin() + i * slices.slice_size(), slices.slice_size(),
                out.values.begin() + slices.begin(i));
  }
  return OneOutput(std::move(out));
}

// Returns the k largest elements along the last axis, and their indices. The lower index is first
// among equals.
Outputs TopK(const OnnxCall& call) {
  const OnnxTensor& in = call.In(0);
  PP_RETURN_IF_ERROR(RequireType(in, kOnnxFloat32));
  PP_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(call.Int("axis"), in.shape.size()));
  PP_ASSIGN_OR_RETURN(const std::vector<int64_t> k, call.IntsIn(1));
  PP_RETURN_IF_ERROR(
      Require(axis + 1 == static_cast<int64_t>(in.shape.size()) && k.size() == 1 && k[0] >= 0 &&
                  k[0] <= in.shape[axis] && call.num_outputs() == 2,
              absl::StrCat("cannot take that many along axis ", axis, " of ", DescribeTensor(in))));
  OnnxShape shape = in.shape;
  shape[axis] = k[0];
  OnnxTensor values = {kOnnxFloat32, shape, {}}, indices = {kOnnxInt64, shape, {}};
  const int64_t columns = in.shape[axis];
  for (auto row = in.values.begin(); row != in.values.end(); row += columns) {
    std::vector<int64_t> order(columns);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return row[a] > row[b]; });
    for (int64_t i = 0; i < k[0]; ++i) {
      values.values.push_back(row[order[i]]);
      indices.values.push_back(static_cast<double>(order[i]));
    }
  }
  return std::vector<OnnxTensor>{std::move(values), std::move(indices)};
}

// Returns the intersection divided by the union. `a` and `b` point to two opposite corners y, x, y,
// x of a box each, in any order. Computes in float32 as runtimes do: the area of a huge box is
// infinite, and it overlaps nothing.
float Overlap(const double* a, const double* b) {
  const auto edge = [](const double* box, int i) { return static_cast<float>(box[i]); };
  const auto area = [&](const double* box) {
    return std::abs((edge(box, 2) - edge(box, 0)) * (edge(box, 3) - edge(box, 1)));
  };
  float shared = 1.0f;
  for (int axis = 0; axis < 2; ++axis) {
    const float low = std::max(std::min(edge(a, axis), edge(a, axis + 2)),
                               std::min(edge(b, axis), edge(b, axis + 2)));
    const float high = std::min(std::max(edge(a, axis), edge(a, axis + 2)),
                                std::max(edge(b, axis), edge(b, axis + 2)));
    shared *= std::max(0.0f, high - low);
  }
  return shared == 0.0f ? 0.0f : shared / (area(a) + area(b) - shared);
}

// Boxes [N, A, 4] and scores [N, C, A] give rows (image, class, box), in the order of images and
// classes and by falling score. A score has to be above the threshold; a box is dropped if its
// overlap with a kept box is above the threshold.
Outputs NonMaxSuppression(const OnnxCall& call) {
  const OnnxTensor &boxes = call.In(0), &scores = call.In(1);
  for (const int i : {0, 1, 3, 4}) PP_RETURN_IF_ERROR(RequireType(call.In(i), kOnnxFloat32));
  PP_RETURN_IF_ERROR(RequireType(call.In(2), kOnnxInt64));
  for (const int i : {2, 3, 4}) {
    PP_RETURN_IF_ERROR(Require(call.In(i).values.size() == 1, "a limit is not one number"));
  }
  PP_RETURN_IF_ERROR(
      Require(boxes.shape.size() == 3 && scores.shape.size() == 3 && boxes.shape[2] == 4 &&
                  boxes.shape[0] == scores.shape[0] && boxes.shape[1] == scores.shape[2],
              absl::StrCat("boxes ", DescribeTensor(boxes), ", scores ", DescribeTensor(scores))));
  const double most = call.In(2).values[0], least_score = call.In(4).values[0];
  const float overlap = static_cast<float>(call.In(3).values[0]);
  const int64_t classes = scores.shape[1], count = boxes.shape[1];
  OnnxTensor rows = {kOnnxInt64, {0, 3}, {}};
  for (int64_t list = 0; list < scores.shape[0] * classes; ++list) {
    const double* const score = scores.values.data() + list * count;
    const double* const box = boxes.values.data() + list / classes * count * 4;
    std::vector<int64_t> order;
    for (int64_t i = 0; i < count; ++i) {
      if (score[i] > least_score) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return score[a] > score[b]; });
    std::vector<int64_t> kept;
    for (const int64_t i : order) {
      if (static_cast<double>(kept.size()) >= most) break;
      if (std::any_of(kept.begin(), kept.end(), [&](int64_t other) {
            return Overlap(box + 4 * i, box + 4 * other) > overlap;
          })) {
        continue;
      }
      kept.push_back(i);
      for (const int64_t part : {list / classes, list % classes, i}) {
        rows.values.push_back(static_cast<double>(part));
      }
      ++rows.shape[0];
    }
  }
  return OneOutput(std::move(rows));
}

}  // namespace

OnnxOperators SelectionOperators() {
  return {
      {"GatherND", {2, 2, {}, GatherNd, {{"batch_dims", kIntAttribute}}}},
      {"NonMaxSuppression", {5, 5, {}, NonMaxSuppression}},
      {"ScatterND", {3, 3, {}, ScatterNd}},
      {"TopK", {2, 2, {{"axis", kIntAttribute}}, TopK}},
  };
}

}  // namespace pushpull
