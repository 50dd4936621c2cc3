// The values that the reference interpreter of ONNX computes with. Plain values and pure functions.
#ifndef PUSHPULL_TESTS_TESTKIT_ONNX_ONNX_TENSOR_H_
#define PUSHPULL_TESTS_TESTKIT_ONNX_ONNX_TENSOR_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "protos/onnx.pb.h"

namespace pushpull {

using OnnxType = onnx::TensorProto::DataType;
using OnnxShape = std::vector<int64_t>;

inline constexpr OnnxType kOnnxFloat32 = onnx::TensorProto::FLOAT;
inline constexpr OnnxType kOnnxInt64 = onnx::TensorProto::INT64;
inline constexpr OnnxType kOnnxUint8 = onnx::TensorProto::UINT8;
inline constexpr OnnxType kOnnxBool = onnx::TensorProto::BOOL;

// A tensor of one of the types above. A double represents every float32 exactly, and the
// integers that occur in our graphs.
struct OnnxTensor {
  OnnxType type = kOnnxFloat32;
  OnnxShape shape;             // empty: a scalar
  std::vector<double> values;  // in C order
};

// Values of a graph by their names.
using OnnxValues = std::map<std::string, OnnxTensor>;

int64_t NumElements(const OnnxShape& shape);
// Returns the position of an element in OnnxTensor::values.
int64_t OffsetOf(const OnnxShape& shape, const std::vector<int64_t>& index);
// Returns a text such as "float32[1,3,4]".
std::string DescribeTensor(OnnxType type, const OnnxShape& shape);
inline std::string DescribeTensor(const OnnxTensor& tensor) {
  return DescribeTensor(tensor.type, tensor.shape);
}

// Returns a tensor of zeros.
OnnxTensor MakeTensor(OnnxType type, const OnnxShape& shape);
OnnxTensor FloatTensor(const OnnxShape& shape, const std::vector<float>& values);
OnnxTensor IntTensor(const std::vector<int64_t>& values);  // with one axis

// Reads a constant of a graph. INVALID_ARGUMENT: its type is neither FLOAT nor INT64, or the number
// of its bytes does not follow from its shape.
absl::StatusOr<OnnxTensor> ReadConstant(const onnx::TensorProto& constant);

// Calls visit(index) for each index of a tensor of the shape, in C order.
template <typename Visit>
void ForEachIndex(const OnnxShape& shape, const Visit& visit) {
  std::vector<int64_t> index(shape.size());
  for (int64_t left = NumElements(shape); left > 0; --left) {
    visit(index);
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

// Returns INVALID_ARGUMENT with the message unless the condition holds.
inline absl::Status Require(bool condition, absl::string_view message) {
  return condition ? absl::OkStatus() : absl::InvalidArgumentError(message);
}
// Returns INVALID_ARGUMENT unless the tensor has the type.
absl::Status RequireType(const OnnxTensor& tensor, OnnxType type);

// Returns `axis`, or axis + rank if it is negative. INVALID_ARGUMENT: there is no such axis.
absl::StatusOr<int64_t> ResolveAxis(int64_t axis, size_t rank);

// Returns the shape to which both shapes are broadcast, by the rules of NumPy.
absl::StatusOr<OnnxShape> BroadcastShape(const OnnxShape& a, const OnnxShape& b);
// Repeats the elements of `tensor` so that they fill `shape`, a result of BroadcastShape.
OnnxTensor BroadcastTo(const OnnxTensor& tensor, const OnnxShape& shape);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_ONNX_ONNX_TENSOR_H_
