#include "tests/testkit/onnx/onnx_tensor.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

std::string NameOf(OnnxType type) {
  switch (type) {
    case kOnnxFloat32:
      return "float32";
    case kOnnxInt64:
      return "int64";
    case kOnnxUint8:
      return "uint8";
    case kOnnxBool:
      return "bool";
    default:
      return absl::StrCat("type ", static_cast<int>(type));
  }
}

template <typename T>
std::vector<double> ReadBytes(const std::string& bytes) {
  std::vector<T> elements(bytes.size() / sizeof(T));
  std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(T));
  return {elements.begin(), elements.end()};
}

}  // namespace

int64_t NumElements(const OnnxShape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

int64_t OffsetOf(const OnnxShape& shape, const std::vector<int64_t>& index) {
  CHECK_EQ(shape.size(), index.size());
  int64_t offset = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    CHECK(index[axis] >= 0 && index[axis] < shape[axis]) << index[axis] << " of " << shape[axis];
    offset = offset * shape[axis] + index[axis];
  }
  return offset;
}

std::string DescribeTensor(OnnxType type, const OnnxShape& shape) {
  return absl::StrCat(NameOf(type), "[", absl::StrJoin(shape, ","), "]");
}

OnnxTensor MakeTensor(OnnxType type, const OnnxShape& shape) {
  return {type, shape, std::vector<double>(NumElements(shape))};
}

OnnxTensor FloatTensor(const OnnxShape& shape, const std::vector<float>& values) {
  CHECK_EQ(NumElements(shape), static_cast<int64_t>(values.size()));
  return {kOnnxFloat32, shape, {values.begin(), values.end()}};
}

OnnxTensor IntTensor(const std::vector<int64_t>& values) {
  return {kOnnxInt64, {static_cast<int64_t>(values.size())}, {values.begin(), values.end()}};
}

absl::StatusOr<OnnxTensor> ReadConstant(const onnx::TensorProto& constant) {
  OnnxTensor tensor;
  tensor.type = static_cast<OnnxType>(constant.data_type());
  tensor.shape.assign(constant.dims().begin(), constant.dims().end());
  const std::string& bytes = constant.raw_data();
  size_t element_size = sizeof(float);
  if (tensor.type == kOnnxFloat32) {
    tensor.values = ReadBytes<float>(bytes);
  } else if (tensor.type == kOnnxInt64) {
    tensor.values = ReadBytes<int64_t>(bytes);
    element_size = sizeof(int64_t);
  } else {
    return absl::InvalidArgumentError(
        absl::StrCat("the constant ", constant.name(), " has ", NameOf(tensor.type)));
  }
  PP_RETURN_IF_ERROR(Require(
      static_cast<int64_t>(bytes.size()) ==
          NumElements(tensor.shape) * static_cast<int64_t>(element_size),
      absl::StrCat(constant.name(), " is ", DescribeTensor(tensor), " in ", bytes.size(), " B")));
  return tensor;
}

absl::Status RequireType(const OnnxTensor& tensor, OnnxType type) {
  return Require(tensor.type == type, absl::StrCat("expected ", NameOf(type), ", the input is ",
                                                   DescribeTensor(tensor)));
}

absl::StatusOr<int64_t> ResolveAxis(int64_t axis, size_t rank) {
  const int64_t axes = static_cast<int64_t>(rank);
  PP_RETURN_IF_ERROR(Require(axis >= -axes && axis < axes,
                             absl::StrCat("there is no axis ", axis, " among ", axes)));
  return axis < 0 ? axis + axes : axis;
}

absl::StatusOr<OnnxShape> BroadcastShape(const OnnxShape& a, const OnnxShape& b) {
  OnnxShape shape(std::max(a.size(), b.size()), 1);
  for (const OnnxShape* const part : {&a, &b}) {
    const size_t skipped = shape.size() - part->size();
    for (size_t axis = 0; axis < part->size(); ++axis) {
      int64_t& size = shape[skipped + axis];
      const int64_t own = (*part)[axis];
      PP_RETURN_IF_ERROR(Require(size == own || size == 1 || own == 1,
                                 absl::StrCat("[", absl::StrJoin(a, ","), "] and [",
                                              absl::StrJoin(b, ","), "] do not broadcast")));
      if (size == 1) size = own;
    }
  }
  return shape;
}

OnnxTensor BroadcastTo(const OnnxTensor& tensor, const OnnxShape& shape) {
  if (tensor.shape == shape) return tensor;
  OnnxTensor result = {tensor.type, shape, {}};
  result.values.reserve(NumElements(shape));
  const size_t skipped = shape.size() - tensor.shape.size();
  std::vector<int64_t> from(tensor.shape.size());
  ForEachIndex(shape, [&](const std::vector<int64_t>& index) {
    for (size_t axis = 0; axis < from.size(); ++axis) {
      from[axis] = tensor.shape[axis] == 1 ? 0 : index[skipped + axis];
    }
    result.values.push_back(tensor.values[OffsetOf(tensor.shape, from)]);
  });
  return result;
}

}  // namespace pushpull
