#include "common/wire/gradient_codec.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "kernels/bfloat16.h"
#include "tests/testkit/each_cpu_isa.h"

namespace pushpull {
namespace {

// All codecs of this build, found as a peer or a user would name them.
std::vector<const GradientCodec*> Codecs() {
  std::vector<const GradientCodec*> codecs;
  for (int value = 0; value < ps::GradientEncoding_ARRAYSIZE; ++value) {
    codecs.push_back(FindGradientCodec(static_cast<ps::GradientEncoding>(value)));
  }
  return codecs;
}

std::vector<float> Values(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = 1.0f + 0.37f * static_cast<float>(i);
  return values;
}

TEST(GradientCodecTest, EveryEncodingHasACodecAndAFlag) {
  for (const GradientCodec* codec : Codecs()) {
    ASSERT_NE(codec, nullptr);
    EXPECT_EQ(FindGradientCodec(codec->flag()), codec);
    EXPECT_EQ(FindGradientCodec(codec->encoding()), codec);
    EXPECT_TRUE(absl::StrContains(GradientCodecFlags(), codec->flag()));
  }
  EXPECT_EQ(FindGradientCodec(static_cast<ps::GradientEncoding>(1000)), nullptr);
  EXPECT_EQ(FindGradientCodec("fp8"), nullptr);
}

TEST(GradientCodecTest, WeightsAreSentOnlyWithoutErrorFeedback) {
  EXPECT_EQ(WeightCodecFlags(), "fp32, bf16");
  EXPECT_EQ(FindWeightCodec("bf16"), &Bfloat16Codec());
  EXPECT_EQ(FindWeightCodec("int8"), nullptr);
  EXPECT_EQ(FindWeightCodec("fp8"), nullptr);
  EXPECT_EQ(*FindWeightCodec(ps::FLOAT32), &Float32Codec());
  for (const int value : {static_cast<int>(ps::INT8_BLOCKS), 3, 1000, -1}) {
    const auto found = FindWeightCodec(static_cast<ps::GradientEncoding>(value));
    EXPECT_EQ(found.status(),
              absl::InvalidArgumentError(absl::StrCat("a pull asks for weights in encoding ", value,
                                                      ", which is none of fp32, bf16")));
  }
}

TEST(GradientCodecTest, DecodesAnyPartOfAChunkAndWritesNothingBeyond) {
  ForEachCpuIsa([&] {
    constexpr size_t kOdd = 1;  // an offset that makes every address unaligned
    for (const GradientCodec* codec : Codecs()) {
      for (size_t size = 0; size <= 67; ++size) {
        const std::vector<float> values = Values(size);
        const size_t bytes = codec->EncodedBytes(size);
        std::string encoded(bytes + 2 * kOdd, 'x');
        codec->Encode(values, &encoded[kOdd]);
        EXPECT_EQ(encoded.front(), 'x');
        EXPECT_EQ(encoded.back(), 'x');
        for (size_t begin = 0; begin <= size; begin += 3) {
          std::vector<float> decoded(size - begin + 1, -7.0f);
          codec->Decode(&encoded[kOdd], size, begin, size - begin, decoded.data());
          EXPECT_EQ(decoded.back(), -7.0f);
          for (size_t i = begin; i < size; ++i) {
            // Where a block has one scale, its largest value decides how exact the others are.
            const float size_of = codec->needs_error_feedback() ? values.back() : values[i];
            ASSERT_NEAR(decoded[i - begin], values[i], size_of / 128) << codec->flag() << " " << i;
          }
        }
      }
    }
  });
}

TEST(GradientCodecTest, FindsTheFirstValueThatIsNotFinite) {
  ForEachCpuIsa([&] {
    const float bad[] = {std::numeric_limits<float>::infinity(),
                         -std::numeric_limits<float>::infinity(), std::nanf("")};
    for (const GradientCodec* codec : Codecs()) {
      for (const size_t size : {1u, 8u, 31u, 64u, 200u}) {
        std::string encoded(codec->EncodedBytes(size) + 1, 'x');
        codec->Encode(Values(size), &encoded[1]);
        EXPECT_EQ(codec->FindNonFinite(&encoded[1], size), static_cast<int64_t>(size));
        for (size_t at = 0; at < size; ++at) {
          std::vector<float> values = Values(size);
          values[at] = bad[at % 3];
          values[size - 1] = std::isfinite(values[size - 1]) ? bad[0] : values[size - 1];
          codec->Encode(values, &encoded[1]);
          ASSERT_EQ(codec->FindNonFinite(&encoded[1], size), static_cast<int64_t>(at))
              << codec->flag();
        }
      }
    }
  });
}

// Covers every upper half of a float, with the lower halves around every rounding boundary.
TEST(GradientCodecTest, Bfloat16RoundsLikeTheScalarFormula) {
  ForEachCpuIsa([&] {
    for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      std::vector<float> values;
      for (uint32_t high = 0; high < 0x10000u; ++high) {
        values.push_back(std::bit_cast<float>(high << 16 | low));
      }
      values.push_back(1.0f);  // an odd size takes the path of the last elements too
      std::vector<uint16_t> rounded(values.size());
      Bfloat16Codec().Encode(values, reinterpret_cast<char*>(rounded.data()));
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(rounded[i], ToBfloat16(values[i]).bits) << std::hex << i << " " << low;
      }
    }
  });
}

}  // namespace
}  // namespace pushpull
