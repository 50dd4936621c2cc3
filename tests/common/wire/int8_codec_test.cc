// What int8 blocks have that other encodings do not; gradient_codec_test.cc runs over all codecs.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/random.h"
#include "common/wire/gradient_codec.h"
#include "tests/testkit/each_cpu_isa.h"

namespace pushpull {
namespace {

constexpr size_t kBlock = 32;

uint16_t ScaleOf(const std::string& encoded, size_t block) {
  uint16_t scale;
  std::memcpy(&scale, &encoded[block * (kBlock + 2)], sizeof(scale));
  return scale;
}

float Value(uint16_t scale) { return std::bit_cast<float>(static_cast<uint32_t>(scale) << 16); }

std::string Encode(const std::vector<float>& values) {
  std::string encoded(Int8Codec().EncodedBytes(static_cast<int64_t>(values.size())), 'x');
  Int8Codec().Encode(values, encoded.data());
  return encoded;
}

std::vector<float> Decode(const std::string& encoded, size_t elements) {
  std::vector<float> decoded(elements);
  Int8Codec().Decode(encoded.data(), elements, 0, elements, decoded.data());
  return decoded;
}

// The formula of the codec's comment, element by element, for blocks that can be encoded.
std::string Reference(const std::vector<float>& values) {
  std::string encoded;
  for (size_t first = 0; first < values.size(); first += kBlock) {
    const size_t end = std::min(values.size(), first + kBlock);
    float largest = 0.0f;
    for (size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
    const float quotient = largest / 127.0f;
    auto scale = static_cast<uint16_t>(std::bit_cast<uint32_t>(quotient) >> 16);
    if (Value(scale) < quotient) ++scale;
    if (Value(scale) < std::numeric_limits<float>::min()) scale = 0x0080;
    encoded.append(reinterpret_cast<const char*>(&scale), sizeof(scale));
    for (size_t i = first; i < end; ++i) {
      // A char of ARM is unsigned, and a negative float has no value there.
      const auto code = static_cast<int8_t>(std::nearbyint(values[i] / Value(scale)));
      encoded.push_back(static_cast<char>(code));
    }
  }
  return encoded;
}

// Values of all magnitudes, some of them zero. `spread`: the range of exponents within a block.
std::vector<float> RandomValues(size_t count, int spread, uint64_t seed) {
  CounterRandom random(seed, 0);
  std::vector<float> values(count);
  int base = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i % kBlock == 0) base = static_cast<int>(random.NextBelow(250)) - 140;
    const float sign = random.NextBelow(2) == 0 ? -1.0f : 1.0f;
    const float mantissa = 1.0f + static_cast<float>(random.NextBelow(1 << 23)) / (1 << 23);
    const int exponent = std::min(120, base + static_cast<int>(random.NextBelow(spread)));
    values[i] = random.NextBelow(9) == 0 ? 0.0f : sign * std::ldexp(mantissa, exponent);
  }
  return values;
}

TEST(Int8CodecTest, EqualsTheScalarFormulaBitForBit) {
  ForEachCpuIsa([&] {
    for (const int spread : {1, 4, 12}) {
      for (size_t count = 0; count <= 70; ++count) {
        const std::vector<float> values = RandomValues(count, spread, 100 * count + spread);
        ASSERT_EQ(Encode(values), Reference(values)) << count << " elements, spread " << spread;
      }
      const std::vector<float> many = RandomValues(200000, spread, spread);
      ASSERT_EQ(Encode(many), Reference(many)) << "spread " << spread;
    }
  });
}

TEST(Int8CodecTest, IsWithinHalfAScaleAndKeepsZeros) {
  const std::vector<float> values = RandomValues(100000, 8, 5);
  const std::string encoded = Encode(values);
  const std::vector<float> decoded = Decode(encoded, values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double half = 0.5 * Value(ScaleOf(encoded, i / kBlock));
    // The division rounds once, by 2^-24 of at most 127.
    ASSERT_LE(std::abs(static_cast<double>(values[i]) - decoded[i]), half * (1 + 127e-6)) << i;
    if (values[i] == 0.0f) {
      ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), 0u) << i;
    }
    ASSERT_GE(values[i] * decoded[i], 0.0f) << "a sign has changed, element " << i;
  }
}

TEST(Int8CodecTest, LengthCountsOneScalePerStartedBlock) {
  EXPECT_EQ(Int8Codec().EncodedBytes(0), 0);
  EXPECT_EQ(Int8Codec().EncodedBytes(1), 3);
  EXPECT_EQ(Int8Codec().EncodedBytes(32), 34);
  EXPECT_EQ(Int8Codec().EncodedBytes(33), 37);
  EXPECT_EQ(Int8Codec().EncodedBytes(262144), 278528);
}

TEST(Int8CodecTest, TinyAndZeroBlocksHaveTheSmallestNormalScale) {
  const float denormal = std::numeric_limits<float>::denorm_min();
  for (const float value : {0.0f, -0.0f, denormal, -1000 * denormal, 1.1e-38f}) {
    const std::vector<float> values(kBlock, value);
    const std::string encoded = Encode(values);
    EXPECT_EQ(ScaleOf(encoded, 0), 0x0080) << value;
    EXPECT_NEAR(Decode(encoded, kBlock)[7], value, 0.5 * 0x1p-126) << value;
  }
}

TEST(Int8CodecTest, TheLargestMagnitudesAreRefusedNotOverflowed) {
  const float largest = 127.0f * Value(0x7bff);
  std::vector<float> values(kBlock, 1.0f);
  values[3] = -largest;
  EXPECT_EQ(Decode(Encode(values), kBlock)[3], -largest);
  EXPECT_EQ(Int8Codec().FindNonFinite(Encode(values).data(), kBlock), kBlock);
  values[3] = -std::nextafter(largest, std::numeric_limits<float>::infinity());
  const std::string encoded = Encode(values);
  EXPECT_EQ(Int8Codec().FindNonFinite(encoded.data(), kBlock), 3);
  EXPECT_EQ(Decode(encoded, kBlock)[3], -std::numeric_limits<float>::infinity());
  values[3] = std::nanf("");
  EXPECT_TRUE(std::isnan(Decode(Encode(values), kBlock)[3]));
}

// Every scale and every code that a peer may send decodes to a finite value or is refused.
TEST(Int8CodecTest, NoHostileBlockGetsANonFiniteValueThrough) {
  std::string encoded(Int8Codec().EncodedBytes(kBlock), '\0');
  for (size_t i = 0; i < kBlock; ++i) encoded[2 + i] = static_cast<char>(i * 9 - 128);
  int refused = 0;
  for (uint32_t scale = 0; scale <= 0xffff; ++scale) {
    std::memcpy(encoded.data(), &scale, 2);
    const std::vector<float> decoded = Decode(encoded, kBlock);
    const bool finite =
        std::all_of(decoded.begin(), decoded.end(), [](float v) { return std::isfinite(v); });
    const int64_t bad = Int8Codec().FindNonFinite(encoded.data(), kBlock);
    ASSERT_GE(bad, 0);
    ASSERT_TRUE(finite || bad < static_cast<int64_t>(kBlock)) << std::hex << scale;
    ASSERT_EQ(bad<static_cast<int64_t>(kBlock), scale> 0x7bff) << std::hex << scale;
    refused += bad < static_cast<int64_t>(kBlock);
  }
  EXPECT_EQ(refused, 0x10000 - 0x7c00);
  // A scale that is not finite with codes of zero: the block's first element is named.
  std::string zeros(Int8Codec().EncodedBytes(2 * kBlock), '\0');
  zeros[kBlock + 2] = '\xc0';
  zeros[kBlock + 3] = '\x7f';
  EXPECT_EQ(Int8Codec().FindNonFinite(zeros.data(), 2 * kBlock), kBlock);
}

}  // namespace
}  // namespace pushpull
