// The operators that compute each element of their output on its own, from a few elements of their
// inputs. Each is a struct with its operands and a formula, which the CPU and the GPU run for all
// elements. The CPU has faster forms of some (host_gather.cc), which the tests compare with the
// formula; the GPU may round differently. The operands are plain tensors, [rows, channels], and
// all pointers are to memory of the operators.
//
// A new operator is a struct here in kernels/gather and a row of Gather.
#ifndef PUSHPULL_KERNELS_GATHER_GATHER_H_
#define PUSHPULL_KERNELS_GATHER_GATHER_H_

#include <variant>

#include "kernels/gather/activation.h"
#include "kernels/gather/arithmetic.h"
#include "kernels/gather/pool.h"
#include "kernels/gather/repeat.h"

namespace pushpull {

// T is the type of activations. Each alternative has
//   kName               what a profile calls it
//   rows, channels      of the output
//   operator()(row, c)  computes and stores one element of the output
template <typename T>
using Gather =
    std::variant<gather::ActivationForward<T>, gather::ActivationBackward<T>, gather::AddForward<T>,
                 gather::MultiplyForward<T>, gather::MultiplyBackwardGate<T>,
                 gather::CopyChannels<T>, gather::MaxPoolForward<T>, gather::MaxPoolBackward<T>,
                 gather::AveragePoolForward<T>, gather::AveragePoolBackward<T>,
                 gather::UpsampleForward<T>, gather::UpsampleBackward<T>,
                 gather::RepeatChannelsForward<T>, gather::RepeatChannelsBackward<T>>;

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_GATHER_GATHER_H_
