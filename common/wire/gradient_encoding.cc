#include "common/wire/gradient_encoding.h"

namespace pushpull {

std::optional<int64_t> BytesPerElement(ps::GradientEncoding encoding) {
  switch (encoding) {
    case ps::FLOAT32:
      return 4;
    case ps::BFLOAT16:
      return 2;
    default:
      return std::nullopt;
  }
}

}  // namespace pushpull
