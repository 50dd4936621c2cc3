#include "common/wire/gradient_codec.h"

#include <array>
#include <vector>

#include "absl/strings/str_join.h"

namespace pushpull {
namespace {

std::array<const GradientCodec*, 2> Codecs() { return {&Float32Codec(), &Bfloat16Codec()}; }

}  // namespace

const GradientCodec* FindGradientCodec(ps::GradientEncoding encoding) {
  for (const GradientCodec* codec : Codecs()) {
    if (codec->encoding() == encoding) return codec;
  }
  return nullptr;
}

const GradientCodec* FindGradientCodec(absl::string_view flag) {
  for (const GradientCodec* codec : Codecs()) {
    if (codec->flag() == flag) return codec;
  }
  return nullptr;
}

std::string GradientCodecFlags() {
  std::vector<absl::string_view> flags;
  for (const GradientCodec* codec : Codecs()) flags.push_back(codec->flag());
  return absl::StrJoin(flags, ", ");
}

}  // namespace pushpull
