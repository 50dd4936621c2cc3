#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "tests/testkit/onnx/onnx_operators.h"

namespace pushpull {
namespace {

using Outputs = OnnxOperator::Outputs;
using Index = std::vector<int64_t>;

// Returns `in` with another shape.
Outputs WithShape(const OnnxTensor& in, const OnnxShape& shape) {
  PP_RETURN_IF_ERROR(
      Require(NumElements(shape) == NumElements(in.shape),
              absl::StrCat(DescribeTensor(in), " becomes ", DescribeTensor(in.type, shape))));
  return OneOutput({in.type, shape, in.values});
}

// Copies the part of `from` that begins at `from_begin` and has the shape `extent` to `to`, where
// it begins at `to_begin`.
void CopyBlock(const OnnxTensor& from, const Index& from_begin, const OnnxShape& extent,
               const Index& to_begin, OnnxTensor* to) {
  Index source(extent.size()), target(extent.size());
  ForEachIndex(extent, [&](const Index& index) {
    for (size_t axis = 0; axis < extent.size(); ++axis) {
      source[axis] = from_begin[axis] + index[axis];
      target[axis] = to_begin[axis] + index[axis];
    }
    to->values[OffsetOf(to->shape, target)] = from.values[OffsetOf(from.shape, source)];
  });
}

Outputs Cast(const OnnxCall& call) {
  OnnxTensor out = call.In(0);
  out.type = static_cast<OnnxType>(call.Int("to"));
  PP_RETURN_IF_ERROR(Require(out.type == kOnnxFloat32 || out.type == kOnnxInt64,
                             absl::StrCat("casts to type ", call.Int("to"))));
  if (out.type == kOnnxInt64) {
    for (double& value : out.values) value = std::trunc(value);
  }
  return OneOutput(std::move(out));
}

Outputs Concat(const OnnxCall& call) {
  OnnxShape shape = call.In(0).shape;
  PP_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(call.Int("axis"), shape.size()));
  for (int i = 1; i < call.num_inputs(); ++i) {
    PP_RETURN_IF_ERROR(RequireType(call.In(i), call.In(0).type));
    OnnxShape part = call.In(i).shape;
    PP_RETURN_IF_ERROR(Require(part.size() == shape.size(), "the parts differ in their rank"));
    shape[axis] += part[axis];
    part[axis] = call.In(0).shape[axis];
    PP_RETURN_IF_ERROR(Require(part == call.In(0).shape,
                               absl::StrCat("joins ", DescribeTensor(call.In(0)), " and ",
                                            DescribeTensor(call.In(i)), " along axis ", axis)));
  }
  OnnxTensor out = MakeTensor(call.In(0).type, shape);
  Index begin(shape.size());
  for (int i = 0; i < call.num_inputs(); ++i) {
    const OnnxTensor& part = call.In(i);
    CopyBlock(part, Index(shape.size()), part.shape, begin, &out);
    begin[axis] += part.shape[axis];
  }
  return OneOutput(std::move(out));
}

Outputs Split(const OnnxCall& call) {
  const OnnxTensor& in = call.In(0);
  PP_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(call.Int("axis"), in.shape.size()));
  Index sizes(call.num_outputs(), in.shape[axis] / call.num_outputs());
  if (call.Has(1)) {
    PP_ASSIGN_OR_RETURN(sizes, call.IntsIn(1));
  }
  PP_RETURN_IF_ERROR(
      Require(sizes.size() == static_cast<size_t>(call.num_outputs()) &&
                  std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == in.shape[axis],
              absl::StrCat("the parts do not fit ", DescribeTensor(in), " along axis ", axis)));
  std::vector<OnnxTensor> parts;
  Index begin(in.shape.size());
  for (const int64_t size : sizes) {
    OnnxShape shape = in.shape;
    shape[axis] = size;
    parts.push_back(MakeTensor(in.type, shape));
    CopyBlock(in, begin, shape, Index(shape.size()), &parts.back());
    begin[axis] += size;
  }
  return parts;
}

Outputs Slice(const OnnxCall& call) {
  const OnnxTensor& in = call.In(0);
  PP_ASSIGN_OR_RETURN(const Index starts, call.IntsIn(1));
  PP_ASSIGN_OR_RETURN(const Index ends, call.IntsIn(2));
  Index axes(starts.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (call.Has(3)) {
    PP_ASSIGN_OR_RETURN(axes, call.IntsIn(3));
  }
  PP_RETURN_IF_ERROR(Require(starts.size() == ends.size() && starts.size() == axes.size(),
                             "starts, ends and axes differ in their number"));
  Index begin(in.shape.size());
  OnnxShape shape = in.shape;
  for (size_t i = 0; i < axes.size(); ++i) {
    PP_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(axes[i], in.shape.size()));
    const int64_t size = in.shape[axis];
    // ONNX cuts off what lies outside. The exporter never means that.
    PP_RETURN_IF_ERROR(Require(0 <= starts[i] && starts[i] <= ends[i] && ends[i] <= size,
                               absl::StrCat("takes ", starts[i], " to ", ends[i], " of the ", size,
                                            " along axis ", axis)));
    begin[axis] = starts[i];
    shape[axis] = ends[i] - starts[i];
  }
  OnnxTensor out = MakeTensor(in.type, shape);
  CopyBlock(in, begin, shape, Index(shape.size()), &out);
  return OneOutput(std::move(out));
}

// Pads with a constant, which is the default mode.
Outputs Pad(const OnnxCall& call) {
  const OnnxTensor& in = call.In(0);
  const size_t rank = in.shape.size();
  PP_ASSIGN_OR_RETURN(const Index pads, call.IntsIn(1));
  PP_RETURN_IF_ERROR(Require(pads.size() == 2 * rank, "each axis has a begin and an end"));
  PP_RETURN_IF_ERROR(Require(*std::min_element(pads.begin(), pads.end()) >= 0, "cuts off"));
  PP_RETURN_IF_ERROR(RequireType(call.In(2), in.type));
  PP_RETURN_IF_ERROR(Require(call.In(2).shape.empty(), "the padding is a scalar"));
  OnnxShape shape = in.shape;
  for (size_t axis = 0; axis < rank; ++axis) shape[axis] += pads[axis] + pads[rank + axis];
  OnnxTensor out = MakeTensor(in.type, shape);
  std::fill(out.values.begin(), out.values.end(), call.In(2).values[0]);
  CopyBlock(in, Index(rank), in.shape, Index(pads.begin(), pads.begin() + rank), &out);
  return OneOutput(std::move(out));
}

Outputs Transpose(const OnnxCall& call) {
  const OnnxTensor& in = call.In(0);
  const Index perm = call.Ints("perm");
  PP_RETURN_IF_ERROR(Require(perm.size() == in.shape.size(), "perm does not name each axis"));
  OnnxShape shape;
  for (size_t axis = 0; axis < perm.size(); ++axis) {
    PP_RETURN_IF_ERROR(
        Require(std::count(perm.begin(), perm.end(), static_cast<int64_t>(axis)) == 1,
                "perm does not name each axis once"));
    shape.push_back(in.shape[perm[axis]]);
  }
  OnnxTensor out = {in.type, shape, {}};
  out.values.reserve(in.values.size());
  Index from(perm.size());
  ForEachIndex(shape, [&](const Index& index) {
    for (size_t axis = 0; axis < perm.size(); ++axis) from[perm[axis]] = index[axis];
    out.values.push_back(in.values[OffsetOf(in.shape, from)]);
  });
  return OneOutput(std::move(out));
}

// 0 keeps the size of the input's axis, and one -1 stands for what is left.
Outputs Reshape(const OnnxCall& call) {
  const OnnxTensor& in = call.In(0);
  PP_ASSIGN_OR_RETURN(OnnxShape shape, call.IntsIn(1));
  int64_t known = 1;
  int64_t* open = nullptr;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 0) {
      PP_RETURN_IF_ERROR(Require(axis < in.shape.size(), "keeps an axis that does not exist"));
      shape[axis] = in.shape[axis];
    }
    if (shape[axis] == -1) {
      PP_RETURN_IF_ERROR(Require(open == nullptr, "two sizes are open"));
      open = &shape[axis];
      continue;
    }
    PP_RETURN_IF_ERROR(Require(shape[axis] > 0, "a size is not positive"));
    known *= shape[axis];
  }
  if (open != nullptr) *open = NumElements(in.shape) / known;
  return WithShape(in, shape);
}

Outputs Flatten(const OnnxCall& call) {
  const OnnxTensor& in = call.In(0);
  PP_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(call.Int("axis"), in.shape.size()));
  const int64_t rows = NumElements(OnnxShape(in.shape.begin(), in.shape.begin() + axis));
  return WithShape(in, {rows, NumElements(OnnxShape(in.shape.begin() + axis, in.shape.end()))});
}

Outputs Unsqueeze(const OnnxCall& call) {
  OnnxShape shape = call.In(0).shape;
  PP_ASSIGN_OR_RETURN(const Index axes, call.IntsIn(1));
  PP_RETURN_IF_ERROR(Require(axes.size() == 1, "the exporter inserts one axis"));
  PP_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(axes[0], shape.size() + 1));
  shape.insert(shape.begin() + axis, 1);
  return WithShape(call.In(0), shape);
}

Outputs Expand(const OnnxCall& call) {
  PP_ASSIGN_OR_RETURN(const OnnxShape wanted, call.IntsIn(1));
  PP_ASSIGN_OR_RETURN(const OnnxShape shape, BroadcastShape(call.In(0).shape, wanted));
  return OneOutput(BroadcastTo(call.In(0), shape));
}

}  // namespace

OnnxOperators LayoutOperators() {
  return {
      {"Cast", {1, 1, {{"to", kIntAttribute}}, Cast}},
      {"Concat", {1, 1000, {{"axis", kIntAttribute}}, Concat}},
      {"Expand", {2, 2, {}, Expand}},
      {"Flatten", {1, 1, {{"axis", kIntAttribute}}, Flatten}},
      {"Identity",
       {1, 1, {}, [](const OnnxCall& call) -> Outputs { return OneOutput(call.In(0)); }}},
      {"Pad", {3, 3, {}, Pad}},
      {"Reshape", {2, 2, {}, Reshape}},
      {"Shape",
       {1,
        1,
        {},
        [](const OnnxCall& call) -> Outputs { return OneOutput(IntTensor(call.In(0).shape)); }}},
      {"Slice", {3, 4, {}, Slice}},
      {"Split", {1, 2, {{"axis", kIntAttribute}}, Split}},
      {"Transpose", {1, 1, {{"perm", kIntsAttribute}}, Transpose}},
      {"Unsqueeze", {2, 2, {}, Unsqueeze}},
  };
}

}  // namespace pushpull
