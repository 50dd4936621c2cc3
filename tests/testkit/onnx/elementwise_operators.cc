#include <algorithm>
#include <cmath>
#include <limits>

#include "common/base/status_macros.h"
#include "tests/testkit/onnx/onnx_operators.h"

namespace pushpull {
namespace {

using Outputs = OnnxOperator::Outputs;

// Applies `function` to each element of a tensor of type FLOAT.
template <typename Function>
Outputs Map(const OnnxTensor& in, const Function& function) {
  PP_RETURN_IF_ERROR(RequireType(in, kOnnxFloat32));
  OnnxTensor out = in;
  for (double& value : out.values) value = function(value);
  return OneOutput(std::move(out));
}

OnnxOperator Unary(double (*function)(double)) {
  return {1, 1, {}, [=](const OnnxCall& call) { return Map(call.In(0), function); }};
}

// Applies function(a, b, is_integer) to two tensors of the same type, FLOAT or INT64. The result
// has type `type`, or that of the inputs if `type` is UNDEFINED.
template <typename Function>
absl::StatusOr<OnnxTensor> Combine(const OnnxTensor& a, const OnnxTensor& b, OnnxType type,
                                   const Function& function) {
  PP_RETURN_IF_ERROR(Require(a.type == kOnnxFloat32 || a.type == kOnnxInt64, "expected numbers"));
  PP_RETURN_IF_ERROR(RequireType(b, a.type));
  PP_ASSIGN_OR_RETURN(const OnnxShape shape, BroadcastShape(a.shape, b.shape));
  const OnnxTensor left = BroadcastTo(a, shape), right = BroadcastTo(b, shape);
  OnnxTensor out = MakeTensor(type == onnx::TensorProto::UNDEFINED ? a.type : type, shape);
  for (size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] = function(left.values[i], right.values[i], a.type == kOnnxInt64);
  }
  return out;
}

using BinaryFunction = double (*)(double, double, bool);

// Combines all inputs from left to right; most operators have two.
OnnxOperator Nary(int most_inputs, BinaryFunction function,
                  OnnxType type = onnx::TensorProto::UNDEFINED) {
  return {2, most_inputs, {}, [=](const OnnxCall& call) -> Outputs {
            OnnxTensor out = call.In(0);
            for (int i = 1; i < call.num_inputs(); ++i) {
              PP_ASSIGN_OR_RETURN(out, Combine(out, call.In(i), type, function));
            }
            return OneOutput(std::move(out));
          }};
}

double Divide(double a, double b, bool is_integer) {
  return is_integer ? std::trunc(a / b) : a / b;
}
// Takes integers, as Mod without fmod does. The result has the sign of the divisor.
Outputs Modulo(const OnnxCall& call) {
  PP_RETURN_IF_ERROR(RequireType(call.In(0), kOnnxInt64));
  PP_ASSIGN_OR_RETURN(OnnxTensor out,
                      Combine(call.In(0), call.In(1), kOnnxInt64,
                              [](double a, double b, bool) { return a - b * std::floor(a / b); }));
  return OneOutput(std::move(out));
}

Outputs Clip(const OnnxCall& call) {
  double limits[2];
  for (int i = 0; i < 2; ++i) {
    PP_RETURN_IF_ERROR(RequireType(call.In(i + 1), kOnnxFloat32));
    PP_RETURN_IF_ERROR(Require(call.In(i + 1).shape.empty(), "the limits of Clip are scalars"));
    limits[i] = call.In(i + 1).values[0];
  }
  return Map(call.In(0), [&](double x) { return std::min(std::max(x, limits[0]), limits[1]); });
}

Outputs LeakyRelu(const OnnxCall& call) {
  const double alpha = call.Float("alpha");
  return Map(call.In(0), [&](double x) { return x < 0.0 ? alpha * x : x; });
}

Outputs HardSigmoid(const OnnxCall& call) {
  const double alpha = call.Float("alpha"), beta = call.Float("beta");
  return Map(call.In(0), [&](double x) { return std::clamp(alpha * x + beta, 0.0, 1.0); });
}

Outputs Where(const OnnxCall& call) {
  PP_RETURN_IF_ERROR(RequireType(call.In(0), kOnnxBool));
  PP_RETURN_IF_ERROR(RequireType(call.In(2), call.In(1).type));
  OnnxShape shape;
  for (int i = 0; i < 3; ++i) {
    PP_ASSIGN_OR_RETURN(shape, BroadcastShape(shape, call.In(i).shape));
  }
  const OnnxTensor condition = BroadcastTo(call.In(0), shape);
  const OnnxTensor otherwise = BroadcastTo(call.In(2), shape);
  OnnxTensor out = BroadcastTo(call.In(1), shape);
  for (size_t i = 0; i < out.values.size(); ++i) {
    if (condition.values[i] == 0.0) out.values[i] = otherwise.values[i];
  }
  return OneOutput(std::move(out));
}

Outputs Reduce(const OnnxTensor& in, const std::vector<int64_t>& axes, bool keep, double start,
               double (*combine)(double, double)) {
  PP_RETURN_IF_ERROR(RequireType(in, kOnnxFloat32));
  PP_RETURN_IF_ERROR(Require(!axes.empty(), "reduces no axis"));
  OnnxShape reduced = in.shape;
  for (const int64_t axis : axes) {
    PP_ASSIGN_OR_RETURN(const int64_t at, ResolveAxis(axis, in.shape.size()));
    reduced[at] = 1;
  }
  OnnxTensor out = MakeTensor(kOnnxFloat32, reduced);
  std::fill(out.values.begin(), out.values.end(), start);
  int64_t from = 0;
  std::vector<int64_t> to(reduced.size());
  ForEachIndex(in.shape, [&](const std::vector<int64_t>& index) {
    for (size_t axis = 0; axis < to.size(); ++axis) to[axis] = reduced[axis] == 1 ? 0 : index[axis];
    double& value = out.values[OffsetOf(reduced, to)];
    value = combine(value, in.values[from++]);
  });
  if (!keep) {
    out.shape.clear();
    for (size_t axis = 0; axis < in.shape.size(); ++axis) {
      const int64_t negative = static_cast<int64_t>(axis) - static_cast<int64_t>(in.shape.size());
      if (std::count(axes.begin(), axes.end(), static_cast<int64_t>(axis)) +
              std::count(axes.begin(), axes.end(), negative) ==
          0) {
        out.shape.push_back(in.shape[axis]);
      }
    }
  }
  return OneOutput(std::move(out));
}

// At opset 13 the axes of ReduceMax and ReduceMin are an attribute, those of ReduceSum an input.
OnnxOperator ReduceByAttribute(double start, double (*combine)(double, double)) {
  return {1, 1, {{"axes", kIntsAttribute}, {"keepdims", kIntAttribute}}, [=](const OnnxCall& call) {
            return Reduce(call.In(0), call.Ints("axes"), call.Int("keepdims") != 0, start, combine);
          }};
}

Outputs ReduceSum(const OnnxCall& call) {
  PP_ASSIGN_OR_RETURN(const std::vector<int64_t> axes, call.IntsIn(1));
  return Reduce(call.In(0), axes, call.Int("keepdims") != 0, 0.0,
                [](double a, double b) { return a + b; });
}

}  // namespace

OnnxOperators ElementwiseOperators() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return {
      {"Abs", Unary([](double x) { return std::abs(x); })},
      {"Exp", Unary([](double x) { return std::exp(x); })},
      {"Relu", Unary([](double x) { return std::max(x, 0.0); })},
      {"Round", Unary([](double x) { return std::nearbyint(x); })},  // half to even
      {"Sigmoid", Unary([](double x) { return 1.0 / (1.0 + std::exp(-x)); })},
      {"LeakyRelu", {1, 1, {{"alpha", kFloatAttribute}}, LeakyRelu}},
      {"HardSigmoid", {1, 1, {{"alpha", kFloatAttribute}, {"beta", kFloatAttribute}}, HardSigmoid}},
      {"Clip", {3, 3, {}, Clip}},
      {"Add", Nary(2, [](double a, double b, bool) { return a + b; })},
      {"Sub", Nary(2, [](double a, double b, bool) { return a - b; })},
      {"Mul", Nary(2, [](double a, double b, bool) { return a * b; })},
      {"Div", Nary(2, Divide)},
      {"Mod", {2, 2, {}, Modulo}},
      {"Max", Nary(1000, [](double a, double b, bool) { return std::max(a, b); })},
      {"Min", Nary(1000, [](double a, double b, bool) { return std::min(a, b); })},
      {"Greater", Nary(
                      2, [](double a, double b, bool) { return a > b ? 1.0 : 0.0; }, kOnnxBool)},
      {"LessOrEqual",
       Nary(
           2, [](double a, double b, bool) { return a <= b ? 1.0 : 0.0; }, kOnnxBool)},
      {"Where", {3, 3, {}, Where}},
      {"ReduceMax",
       ReduceByAttribute(-kInfinity, [](double a, double b) { return std::max(a, b); })},
      {"ReduceMin",
       ReduceByAttribute(kInfinity, [](double a, double b) { return std::min(a, b); })},
      {"ReduceSum", {2, 2, {{"keepdims", kIntAttribute}}, ReduceSum}},
  };
}

}  // namespace pushpull
