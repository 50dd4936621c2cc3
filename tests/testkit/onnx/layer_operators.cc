#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "tests/testkit/onnx/onnx_operators.h"

namespace pushpull {
namespace {

using Outputs = OnnxOperator::Outputs;

// The window of a convolution or pool, which moves over a tensor [N, C, height, width].
struct SlidingWindow {
  int64_t height = 0, width = 0;
  int64_t top = 0, left = 0;  // padding
  int64_t stride_y = 0, stride_x = 0;
  int64_t out_height = 0, out_width = 0;
};

absl::StatusOr<SlidingWindow> SlidingWindowOf(const OnnxCall& call) {
  PP_RETURN_IF_ERROR(RequireType(call.In(0), kOnnxFloat32));
  const OnnxShape& in = call.In(0).shape;
  const std::vector<int64_t> kernel = call.Ints("kernel_shape"), pads = call.Ints("pads"),
                             strides = call.Ints("strides");
  PP_RETURN_IF_ERROR(
      Require(in.size() == 4 && kernel.size() == 2 && pads.size() == 4 && strides.size() == 2,
              "the window does not have two axes"));
  PP_RETURN_IF_ERROR(Require(*std::min_element(kernel.begin(), kernel.end()) > 0 &&
                                 *std::min_element(pads.begin(), pads.end()) >= 0 &&
                                 *std::min_element(strides.begin(), strides.end()) > 0,
                             "a size of the window is negative"));
  SlidingWindow window = {kernel[0], kernel[1], pads[0], pads[1], strides[0], strides[1]};
  const int64_t rows = in[2] + pads[0] + pads[2] - kernel[0];
  const int64_t columns = in[3] + pads[1] + pads[3] - kernel[1];
  PP_RETURN_IF_ERROR(Require(rows >= 0 && columns >= 0, "the window exceeds the input"));
  window.out_height = rows / strides[0] + 1;
  window.out_width = columns / strides[1] + 1;
  return window;
}

// Calls visit(from, to) for all elements of an input plane and an output plane that one element
// (y, x) of the kernel connects.
template <typename Visit>
void ForEachPair(const SlidingWindow& window, const OnnxShape& in, int64_t y, int64_t x,
                 const Visit& visit) {
  for (int64_t row = 0; row < window.out_height; ++row) {
    const int64_t in_row = row * window.stride_y + y - window.top;
    if (in_row < 0 || in_row >= in[2]) continue;
    for (int64_t column = 0; column < window.out_width; ++column) {
      const int64_t in_column = column * window.stride_x + x - window.left;
      if (in_column < 0 || in_column >= in[3]) continue;
      visit(in_row * in[3] + in_column, row * window.out_width + column);
    }
  }
}

// The weights are [outputs, inputs / group, height, width].
Outputs Conv(const OnnxCall& call) {
  PP_ASSIGN_OR_RETURN(const SlidingWindow window, SlidingWindowOf(call));
  const OnnxTensor &in = call.In(0), &weights = call.In(1);
  const int64_t group = call.Int("group");
  PP_RETURN_IF_ERROR(RequireType(weights, kOnnxFloat32));
  PP_RETURN_IF_ERROR(
      Require(group > 0 && in.shape[1] % group == 0 && weights.shape.size() == 4 &&
                  weights.shape[0] % group == 0 && weights.shape[1] == in.shape[1] / group &&
                  weights.shape[2] == window.height && weights.shape[3] == window.width,
              absl::StrCat("weights ", DescribeTensor(weights), " for ", DescribeTensor(in), ", ",
                           group, " groups and a window of ", window.height, "x", window.width)));
  const int64_t outputs = weights.shape[0], inputs = weights.shape[1];
  std::vector<double> biases(outputs, 0.0);
  if (call.Has(2)) {
    PP_RETURN_IF_ERROR(RequireType(call.In(2), kOnnxFloat32));
    PP_RETURN_IF_ERROR(Require(call.In(2).shape == OnnxShape{outputs}, "one bias per channel"));
    biases = call.In(2).values;
  }

  OnnxTensor out =
      MakeTensor(kOnnxFloat32, {in.shape[0], outputs, window.out_height, window.out_width});
  const int64_t in_area = in.shape[2] * in.shape[3];
  const int64_t out_area = window.out_height * window.out_width;
  double* plane = out.values.data();
  for (int64_t n = 0; n < in.shape[0]; ++n) {
    const double* weight = weights.values.data();
    for (int64_t channel = 0; channel < outputs; ++channel, plane += out_area) {
      std::fill_n(plane, out_area, biases[channel]);
      const int64_t first_input = channel / (outputs / group) * inputs;
      for (int64_t i = 0; i < inputs; ++i) {
        const double* const from = in.values.data() + (n * in.shape[1] + first_input + i) * in_area;
        for (int64_t y = 0; y < window.height; ++y) {
          for (int64_t x = 0; x < window.width; ++x, ++weight) {
            ForEachPair(window, in.shape, y, x, [&](int64_t pixel, int64_t result) {
              plane[result] += *weight * from[pixel];
            });
          }
        }
      }
    }
  }
  return OneOutput(std::move(out));
}

// Combines the elements of the input under the window; the padding does not count. `finish` gets
// the combined value and the number of elements.
template <typename Combine, typename Finish>
Outputs Pool(const OnnxCall& call, double start, const Combine& combine, const Finish& finish) {
  PP_ASSIGN_OR_RETURN(const SlidingWindow window, SlidingWindowOf(call));
  const OnnxTensor& in = call.In(0);
  OnnxTensor out =
      MakeTensor(kOnnxFloat32, {in.shape[0], in.shape[1], window.out_height, window.out_width});
  const int64_t in_area = in.shape[2] * in.shape[3];
  const int64_t out_area = window.out_height * window.out_width;
  for (int64_t plane = 0; plane < in.shape[0] * in.shape[1]; ++plane) {
    const double* const from = in.values.data() + plane * in_area;
    double* const to = out.values.data() + plane * out_area;
    std::fill_n(to, out_area, start);
    std::vector<int64_t> counts(out_area);
    for (int64_t y = 0; y < window.height; ++y) {
      for (int64_t x = 0; x < window.width; ++x) {
        ForEachPair(window, in.shape, y, x, [&](int64_t pixel, int64_t result) {
          to[result] = combine(to[result], from[pixel]);
          ++counts[result];
        });
      }
    }
    for (int64_t i = 0; i < out_area; ++i) {
      PP_RETURN_IF_ERROR(Require(counts[i] > 0, "the window covers nothing but padding"));
      to[i] = finish(to[i], counts[i]);
    }
  }
  return OneOutput(std::move(out));
}

Outputs MaxPool(const OnnxCall& call) {
  return Pool(
      call, -std::numeric_limits<double>::infinity(),
      [](double a, double b) { return std::max(a, b); },
      [](double largest, int64_t) { return largest; });
}

Outputs AveragePool(const OnnxCall& call) {
  PP_RETURN_IF_ERROR(Require(call.Int("count_include_pad") == 0, "counts the padding"));
  return Pool(
      call, 0.0, [](double a, double b) { return a + b; },
      [](double sum, int64_t count) { return sum / static_cast<double>(count); });
}

Outputs GlobalAveragePool(const OnnxCall& call) {
  const OnnxTensor& in = call.In(0);
  PP_RETURN_IF_ERROR(RequireType(in, kOnnxFloat32));
  PP_RETURN_IF_ERROR(Require(in.shape.size() == 4, "the input is not [N, C, height, width]"));
  OnnxTensor out = MakeTensor(kOnnxFloat32, {in.shape[0], in.shape[1], 1, 1});
  const int64_t area = in.shape[2] * in.shape[3];
  for (size_t i = 0; i < in.values.size(); ++i) {
    out.values[i / area] += in.values[i] / static_cast<double>(area);
  }
  return OneOutput(std::move(out));
}

// The two pixels along an axis that a resized pixel lies between, and its distance from the first.
struct Neighbours {
  int64_t low, high;
  double weight;
};

// The coordinate transformation `asymmetric`: source = out * in_size / out_size.
Neighbours NeighboursOf(int64_t out, int64_t in_size, int64_t out_size, bool nearest) {
  const double source = static_cast<double>(out * in_size) / static_cast<double>(out_size);
  const int64_t low = std::min(out * in_size / out_size, in_size - 1);
  const int64_t high = std::min(low + 1, in_size - 1);
  return {low, high, nearest ? 0.0 : source - static_cast<double>(low)};
}

// Resizes the height and width of [N, C, height, width], by sizes or by scales. The modes are
// bilinear and nearest_mode `floor`.
Outputs Resize(const OnnxCall& call) {
  const OnnxTensor& in = call.In(0);
  PP_RETURN_IF_ERROR(RequireType(in, kOnnxFloat32));
  const std::string mode = call.String("mode");
  const std::string coordinates = call.String("coordinate_transformation_mode");
  PP_RETURN_IF_ERROR(Require(coordinates == "asymmetric", coordinates));
  const bool nearest = mode == "nearest";
  PP_RETURN_IF_ERROR(Require(nearest || mode == "linear", absl::StrCat("mode ", mode)));
  PP_RETURN_IF_ERROR(Require(nearest == call.HasAttribute("nearest_mode") &&
                                 (!nearest || call.String("nearest_mode") == "floor"),
                             "nearest_mode is not that of the mode"));
  PP_RETURN_IF_ERROR(Require(!call.Has(1) && call.Has(2) != call.Has(3),
                             "expected either scales or sizes, and no region"));
  PP_RETURN_IF_ERROR(Require(in.shape.size() == 4, "resizes no images"));
  OnnxShape shape = in.shape;
  if (call.Has(3)) {
    PP_ASSIGN_OR_RETURN(shape, call.IntsIn(3));
  } else {
    PP_RETURN_IF_ERROR(RequireType(call.In(2), kOnnxFloat32));
    PP_RETURN_IF_ERROR(Require(call.In(2).shape == OnnxShape{4}, "expected four scales"));
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const double scale = call.In(2).values[axis];
      PP_RETURN_IF_ERROR(Require(scale == std::floor(scale), "the scales are whole numbers"));
      shape[axis] *= static_cast<int64_t>(scale);
    }
  }
  PP_RETURN_IF_ERROR(Require(
      shape.size() == 4 && shape[0] == in.shape[0] && shape[1] == in.shape[1] && shape[2] > 0 &&
          shape[3] > 0,
      absl::StrCat("resizes ", DescribeTensor(in), " to ", DescribeTensor(in.type, shape))));
  OnnxTensor out = {kOnnxFloat32, shape, {}};
  ForEachIndex(shape, [&](const std::vector<int64_t>& index) {
    const Neighbours y = NeighboursOf(index[2], in.shape[2], shape[2], nearest);
    const Neighbours x = NeighboursOf(index[3], in.shape[3], shape[3], nearest);
    const auto at = [&](int64_t row, int64_t column) {
      return in.values[OffsetOf(in.shape, {index[0], index[1], row, column})];
    };
    const double top = (1.0 - x.weight) * at(y.low, x.low) + x.weight * at(y.low, x.high);
    const double bottom = (1.0 - x.weight) * at(y.high, x.low) + x.weight * at(y.high, x.high);
    out.values.push_back((1.0 - y.weight) * top + y.weight * bottom);
  });
  return OneOutput(std::move(out));
}

Outputs Softmax(const OnnxCall& call) {
  OnnxTensor out = call.In(0);
  PP_RETURN_IF_ERROR(RequireType(out, kOnnxFloat32));
  PP_ASSIGN_OR_RETURN(const int64_t axis, ResolveAxis(call.Int("axis"), out.shape.size()));
  PP_RETURN_IF_ERROR(Require(axis + 1 == static_cast<int64_t>(out.shape.size()),
                             "the exporter applies Softmax to the last axis"));
  const int64_t columns = out.shape[axis];
  for (auto row = out.values.begin(); row != out.values.end(); row += columns) {
    const double largest = *std::max_element(row, row + columns);
    double sum = 0.0;
    for (int64_t i = 0; i < columns; ++i) sum += std::exp(row[i] - largest);
    for (int64_t i = 0; i < columns; ++i) row[i] = std::exp(row[i] - largest) / sum;
  }
  return OneOutput(std::move(out));
}

}  // namespace

OnnxOperators LayerOperators() {
  const OnnxAttributeTypes window = {
      {"kernel_shape", kIntsAttribute}, {"pads", kIntsAttribute}, {"strides", kIntsAttribute}};
  const auto window_and = [&](const std::string& name) {
    OnnxAttributeTypes attributes = window;
    attributes[name] = kIntAttribute;
    return attributes;
  };
  return {
      {"AveragePool", {1, 1, window_and("count_include_pad"), AveragePool}},
      {"Conv", {2, 3, window_and("group"), Conv}},
      {"GlobalAveragePool", {1, 1, {}, GlobalAveragePool}},
      {"MaxPool", {1, 1, window, MaxPool}},
      {"Resize",
       {3,
        4,
        {{"coordinate_transformation_mode", kStringAttribute}, {"mode", kStringAttribute}},
        Resize,
        {{"nearest_mode", kStringAttribute}}}},
      {"Softmax", {1, 1, {{"axis", kIntAttribute}}, Softmax}},
  };
}

}  // namespace pushpull
