#include "common/base/crc32c.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/crc32c_methods.h"
#include "common/base/random.h"

namespace pushpull {
namespace {

const unsigned char* BytesOf(const std::string& data) {
  return reinterpret_cast<const unsigned char*>(data.data());
}

std::string RandomBytes(size_t size) {
  CounterRandom random(1, 2);
  std::string data(size, '\0');
  for (char& c : data) c = static_cast<char>(random.NextUint32());
  return data;
}

// The register after one more byte, by the definition: division by the polynomial, bit by bit.
uint32_t UpdateByDefinition(uint32_t state, unsigned char byte) {
  state ^= byte;
  for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78u : 0);
  return state;
}

TEST(Crc32c, MatchesTheVectorsOfRfc3720) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  std::string ascending;
  std::string descending;
  for (int i = 0; i < 32; ++i) {
    ascending.push_back(static_cast<char>(i));
    descending.push_back(static_cast<char>(31 - i));
  }
  EXPECT_EQ(Crc32c(ascending), 0x46dd794eu);
  EXPECT_EQ(Crc32c(descending), 0x113fdb5cu);
  const unsigned char iscsi_read[48] = {0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00,
                                        0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00,
                                        0x00, 0x18, 0x28, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
                                        0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
  EXPECT_EQ(Crc32c(iscsi_read, sizeof(iscsi_read)), 0xd9963a56u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32c, EveryMethodGivesTheResultOfTheDefinition) {
  // Covers the lengths at which the methods change from one loop to the next, and every offset of
  // the first byte within a cache line.
  constexpr size_t kLongest = 2200;
  constexpr uint32_t kState = 0x12345678u;
  const std::string data = RandomBytes(kLongest + 64);
  for (size_t offset = 0; offset < 64; offset = offset < 9 ? offset + 1 : offset + 11) {
    const unsigned char* const begin = BytesOf(data) + offset;
    uint32_t expected = kState;
    for (size_t size = 0; size <= kLongest; ++size) {
      for (const Crc32cMethod& method : AvailableCrc32cMethods()) {
        ASSERT_EQ(method.update(kState, begin, size), expected)
            << method.name << ", " << size << " bytes at offset " << offset;
      }
      expected = UpdateByDefinition(expected, begin[size]);
    }
  }
}

TEST(Crc32c, EveryMethodAgreesOnLongMessages) {
  const std::string data = RandomBytes(300000);
  const std::vector<Crc32cMethod> methods = AvailableCrc32cMethods();
  for (const size_t size : {12287, 12288, 12289, 13056, 24576, 65536, 65537, 131071, 299990}) {
    const uint32_t expected = methods.front().update(0, BytesOf(data) + 3, size);
    for (const Crc32cMethod& method : methods) {
      EXPECT_EQ(method.update(0, BytesOf(data) + 3, size), expected) << method.name << " " << size;
    }
  }
}

TEST(Crc32c, EveryMethodCopiesWhatItChecks) {
  const std::string data = RandomBytes(140000);
  for (const Crc32cMethod& method : AvailableCrc32cMethods()) {
    for (size_t size = 0; size < 132000; size = size < 1100 ? size + 1 : 2 * size + 5) {
      std::string copy(size + 2, '#');
      auto* const to = reinterpret_cast<unsigned char*>(copy.data()) + 1;
      const uint32_t state = method.copy(7, BytesOf(data) + 5, size, to);
      ASSERT_EQ(copy.substr(1, size), data.substr(5, size)) << method.name << " " << size;
      ASSERT_EQ(state, method.update(7, BytesOf(data) + 5, size)) << method.name << " " << size;
      ASSERT_TRUE(copy.front() == '#' && copy.back() == '#') << method.name << " " << size;
    }
  }
}

TEST(Crc32c, EveryMethodCopiesToEveryPositionInALine) {
  constexpr size_t kLine = 64;
  const std::string data = RandomBytes(3000);
  for (const Crc32cMethod& method : AvailableCrc32cMethods()) {
    for (const size_t size : {0, 1, 31, 32, 63, 64, 127, 128, 200, 256, 300, 319, 320, 2900}) {
      for (size_t offset = 0; offset < kLine; ++offset) {
        alignas(kLine) unsigned char copy[3100];
        std::fill(std::begin(copy), std::end(copy), '#');
        const uint32_t state = method.copy(7, BytesOf(data) + 5, size, copy + offset);
        const std::string expected =
            std::string(offset, '#') + data.substr(5, size) + std::string(kLine, '#');
        ASSERT_TRUE(
            std::equal(expected.begin(), expected.end(), reinterpret_cast<const char*>(copy)))
            << method.name << ", " << size << " bytes to offset " << offset;
        ASSERT_EQ(state, method.update(7, BytesOf(data) + 5, size))
            << method.name << ", " << size << " bytes to offset " << offset;
      }
    }
  }
}

TEST(Crc32c, CopiesAndExtendsInOneCall) {
  const std::string data = RandomBytes(5000);
  std::string copy(data.size(), '\0');
  const uint32_t first = Crc32c(data.data(), 1234);
  EXPECT_EQ(CopyAndExtendCrc32c(first, data.data() + 1234, data.size() - 1234, copy.data()),
            Crc32c(data));
  EXPECT_EQ(copy.substr(0, data.size() - 1234), data.substr(1234));
}

TEST(Crc32c, UsesTheInstructionWhereTheProcessorHasIt) {
  const std::vector<Crc32cMethod> methods = AvailableCrc32cMethods();
  EXPECT_STREQ(methods.front().name, "table");
#ifdef __x86_64__
  if (__builtin_cpu_supports("sse4.2")) {
    EXPECT_GE(methods.size(), 2);
  }
  EXPECT_EQ(__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f"),
            std::string(methods.back().name) == "fold 512");
#endif
}

TEST(Crc32c, ExtendsInPieces) {
  std::string data(30000, 'x');
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 31);
  for (const size_t cut : {0, 1, 8, 767, 12289, 29999}) {
    EXPECT_EQ(ExtendCrc32c(Crc32c(data.data(), cut), data.data() + cut, data.size() - cut),
              Crc32c(data));
  }
}

TEST(Crc32c, MaskRoundTrips) {
  for (const uint32_t crc : {0u, 1u, 0xffffffffu, 0x8a9136aau}) {
    EXPECT_NE(MaskCrc32c(crc), crc);
    EXPECT_EQ(UnmaskCrc32c(MaskCrc32c(crc)), crc);
  }
}

}  // namespace
}  // namespace pushpull
