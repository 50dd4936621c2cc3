#include "common/wire/gradient_codec.h"

#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pushpull {
namespace {

std::array<const GradientCodec*, 3> Codecs() {
  return {&Float32Codec(), &Bfloat16Codec(), &Int8Codec()};
}

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

absl::StatusOr<const GradientCodec*> FindWeightCodec(ps::GradientEncoding encoding) {
  const GradientCodec* const codec = FindGradientCodec(encoding);
  if (codec != nullptr && !codec->needs_error_feedback()) return codec;
  return absl::InvalidArgumentError(absl::StrCat("a pull asks for weights in encoding ",
                                                 static_cast<int>(encoding), ", which is none of ",
                                                 WeightCodecFlags()));
}

const GradientCodec* FindWeightCodec(absl::string_view flag) {
  const GradientCodec* const codec = FindGradientCodec(flag);
  return codec == nullptr || codec->needs_error_feedback() ? nullptr : codec;
}

std::string WeightCodecFlags() {
  std::vector<absl::string_view> flags;
  for (const GradientCodec* codec : Codecs()) {
    if (!codec->needs_error_feedback()) flags.push_back(codec->flag());
  }
  return absl::StrJoin(flags, ", ");
}

}  // namespace pushpull
