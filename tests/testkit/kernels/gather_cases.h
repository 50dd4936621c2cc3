// One case for every gather, with operands of odd sizes.
#ifndef PUSHPULL_TESTS_TESTKIT_KERNELS_GATHER_CASES_H_
#define PUSHPULL_TESTS_TESTKIT_KERNELS_GATHER_CASES_H_

#include <functional>
#include <string>
#include <vector>

#include "kernels/gather/gather.h"

namespace pushpull {

// Two inputs and an output of a gather.
template <typename T>
struct GatherOperands {
  const T* a = nullptr;
  const T* b = nullptr;
  T* out = nullptr;
};

template <typename T>
struct GatherCase {
  std::string name;
  int64_t a, b, out;  // sizes; 0: not used
  std::function<Gather<T>(const GatherOperands<T>&)> make;
};

template <typename T>
std::vector<GatherCase<T>> AllGatherCases() {
  std::vector<GatherCase<T>> cases;
  for (const ActivationFunction function : AllActivationFunctions()) {
    const op::Activation activation{function, 0.25f};
    const std::string name = ActivationName(function);
    cases.push_back({name, 35, 0, 35, [=](const GatherOperands<T>& o) -> Gather<T> {
                       return gather::ActivationForward<T>{7, 5, activation, o.a, o.out};
                     }});
    cases.push_back({name + "Backward", 35, 35, 35, [=](const GatherOperands<T>& o) -> Gather<T> {
                       return gather::ActivationBackward<T>{7, 5, activation, o.a, o.b, o.out};
                     }});
  }
  cases.push_back({"Add", 35, 35, 35, [](const GatherOperands<T>& o) -> Gather<T> {
                     return gather::AddForward<T>{7, 5, o.a, o.b, o.out};
                   }});
  // Two samples of six pixels.
  cases.push_back({"Multiply", 60, 10, 60, [](const GatherOperands<T>& o) -> Gather<T> {
                     return gather::MultiplyForward<T>{12, 5, 6, o.a, o.b, o.out};
                   }});
  cases.push_back({"MultiplyGate", 60, 60, 10, [](const GatherOperands<T>& o) -> Gather<T> {
                     return gather::MultiplyBackwardGate<T>{2, 5, 6, o.a, o.b, o.out};
                   }});
  // Channels 1 to 3 of five, to channels 2 to 4 of six.
  cases.push_back({"CopyChannels", 35, 0, 42, [](const GatherOperands<T>& o) -> Gather<T> {
                     return gather::CopyChannels<T>{7, 3, o.a, 5, 1, o.out, 6, 2};
                   }});
  const Shape in{2, 5, 4, 3};
  for (const bool padded : {true, false}) {
    // Padded: 5x4 to 3x3 pixels. Otherwise windows of 2x2 that leave out the last row: 2x2 pixels.
    const gather::PoolWindows windows =
        padded ? gather::PoolWindows(in, 3, 2, {1, 1, 1, 2}) : gather::PoolWindows(in, 2, 2, {});
    const int64_t rows = in.n * windows.out_h * windows.out_w;
    const std::string suffix = padded ? "Padded" : "";
    cases.push_back(
        {"MaxPool" + suffix, in.size(), 0, rows * 3, [=](const GatherOperands<T>& o) -> Gather<T> {
           return gather::MaxPoolForward<T>{rows, 3, windows, o.a, o.out};
         }});
    cases.push_back({"MaxPoolBackward" + suffix, in.size(), rows * 3, in.size(),
                     [=](const GatherOperands<T>& o) -> Gather<T> {
                       return gather::MaxPoolBackward<T>{in.rows(), 3, windows, o.a, o.b, o.out};
                     }});
    cases.push_back({"AveragePool" + suffix, in.size(), 0, rows * 3,
                     [=](const GatherOperands<T>& o) -> Gather<T> {
                       return gather::AveragePoolForward<T>{rows, 3, windows, o.a, o.out};
                     }});
    cases.push_back({"AveragePoolBackward" + suffix, rows * 3, 0, in.size(),
                     [=](const GatherOperands<T>& o) -> Gather<T> {
                       return gather::AveragePoolBackward<T>{in.rows(), 3, windows, o.a, o.out};
                     }});
  }
  cases.push_back(
      {"Upsample", in.size(), 0, 9 * in.size(), [=](const GatherOperands<T>& o) -> Gather<T> {
         return gather::UpsampleForward<T>{9 * in.rows(), 3, in, 3, o.a, o.out};
       }});
  cases.push_back({"UpsampleBackward", 9 * in.size(), 0, in.size(),
                   [=](const GatherOperands<T>& o) -> Gather<T> {
                     return gather::UpsampleBackward<T>{in.rows(), 3, in, 3, o.a, o.out};
                   }});
  // Channels 0, 0, 0, 1, 1, 1, ... of seven rows.
  cases.push_back({"RepeatChannels", 35, 0, 105, [](const GatherOperands<T>& o) -> Gather<T> {
                     return gather::RepeatChannelsForward<T>{7, 15, 3, o.a, o.out};
                   }});
  cases.push_back(
      {"RepeatChannelsBackward", 105, 0, 35, [](const GatherOperands<T>& o) -> Gather<T> {
         return gather::RepeatChannelsBackward<T>{7, 5, 3, o.a, o.out};
       }});
  return cases;
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_GATHER_CASES_H_
