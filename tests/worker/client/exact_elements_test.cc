#include "worker/client/exact_elements.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "common/wire/gradient_codec.h"

namespace pushpull {
namespace {

VariableSpec Variable(const char* name, int64_t elements, VariableKind kind, float decay) {
  VariableSpec variable;
  variable.name = name;
  variable.shape = {elements};
  variable.kind = kind;
  variable.moving_average_decay = decay;
  return variable;
}

TEST(ExactElementsTest, AreTheStatisticsThatPushesReplace) {
  const VariableLayout layout =
      *VariableLayout::Create({Variable("weights", 40, VariableKind::kTrainable, 0.0f),
                               Variable("variance", 40, VariableKind::kMovingStatistic, 0.9f),
                               Variable("table", 40, VariableKind::kMovingStatistic, 0.0f)});
  const ExactElements exact = ExactElementsOf(layout);
  EXPECT_FALSE(exact.Overlap({0, layout.offset(2)}));
  EXPECT_TRUE(exact.Overlap({0, layout.offset(2) + 1}));
  EXPECT_TRUE(exact.Overlap({layout.offset(2) + 39, layout.offset(2) + 40}));
  EXPECT_FALSE(exact.Overlap({layout.offset(2) + 40, layout.offset(2) + 50}));
  EXPECT_FALSE(exact.Overlap({layout.offset(2), layout.offset(2)})) << "an empty chunk";
}

// The values do not depend on where the chunks begin, because those of a chunk without exact
// elements are the codec's own.
TEST(ExactElementsTest, TheOthersHaveTheValuesOfTheCodec) {
  const ExactElements exact({{70, 75}, {90, 96}});
  for (const GradientCodec* const codec : {&Bfloat16Codec(), &Int8Codec()}) {
    std::vector<float> chunk(96), others(96);
    for (int i = 0; i < 96; ++i) {
      const bool is_exact = (i >= 70 && i < 75) || i >= 90;
      chunk[i] = is_exact ? 1e6f + static_cast<float>(i) : 0.01f * static_cast<float>(i) + 1.0f;
      others[i] = is_exact ? 0.0f : chunk[i];
    }
    const std::vector<float> original = chunk;
    const auto encode = [&](absl::Span<const float> values, char* bytes) {
      codec->Encode(values, bytes);
    };
    exact.RoundOthers(*codec, encode, /*first=*/0, absl::MakeSpan(chunk));
    std::vector<char> bytes(codec->EncodedBytes(96));
    codec->Encode(others, bytes.data());
    codec->Decode(bytes.data(), 96, 0, 96, others.data());
    for (int i = 0; i < 96; ++i) {
      const bool is_exact = (i >= 70 && i < 75) || i >= 90;
      EXPECT_EQ(chunk[i], is_exact ? original[i] : others[i]) << codec->flag() << " " << i;
    }
    EXPECT_NE(chunk, original) << codec->flag();
  }
}

// A block of int8 codes has one scale, so that one NaN makes all of its values decode to NaN.
TEST(ExactElementsTest, TheFirstValueThatIsNotFiniteIsThatOfTheChunk) {
  const ExactElements exact({{70, 75}});
  for (const GradientCodec* const codec : {&Bfloat16Codec(), &Int8Codec()}) {
    for (const float bad : {std::nanf(""), -INFINITY}) {
      for (const int at : {10, 40, 95}) {
        std::vector<float> chunk(96, 1.0f);
        chunk[at] = bad;
        const auto encode = [&](absl::Span<const float> values, char* bytes) {
          codec->Encode(values, bytes);
        };
        exact.RoundOthers(*codec, encode, /*first=*/0, absl::MakeSpan(chunk));
        EXPECT_EQ(
            std::find_if_not(chunk.begin(), chunk.end(), [](float v) { return std::isfinite(v); }) -
                chunk.begin(),
            at)
            << codec->flag() << " " << bad;
      }
    }
  }
}

}  // namespace
}  // namespace pushpull
