#include "common/wire/gradient_codec.h"

#include <vector>

#include "absl/strings/str_join.h"

namespace pushpull {
namespace {

const GradientCodec* const* Codecs() {
  static const GradientCodec* const codecs[] = {&Float32Codec(), &Bfloat16Codec(), nullptr};
  return codecs;
}

}  // namespace

const GradientCodec* FindGradientCodec(ps::GradientEncoding encoding) {
  const GradientCodec* const* codec = Codecs();
  while (*codec != nullptr && (*codec)->encoding() != encoding) ++codec;
  return *codec;
}

const GradientCodec* FindGradientCodec(absl::string_view flag) {
  const GradientCodec* const* codec = Codecs();
  while (*codec != nullptr && (*codec)->flag() != flag) ++codec;
  return *codec;
}

std::string GradientCodecFlags() {
  std::vector<absl::string_view> flags;
  for (const GradientCodec* const* codec = Codecs(); *codec != nullptr; ++codec) {
    flags.push_back((*codec)->flag());
  }
  return absl::StrJoin(flags, ", ");
}

}  // namespace pushpull
