#include "common/base/crc32c.h"

#include <string>

#include "gtest/gtest.h"

#include "common/base/random.h"

namespace pushpull {
namespace {

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

TEST(Crc32c, InterleavedMatchesTableAtEveryLengthAndAlignment) {
  CounterRandom random(1, 2);
  std::string data(40000, '\0');
  for (char& c : data) c = static_cast<char>(random.NextUint32());
  for (size_t size = 0; size < 1700; ++size) {
    const char* begin = data.data() + size % 9;
    ASSERT_EQ(ExtendCrc32c(7, begin, size), ExtendCrc32cPortable(7, begin, size)) << size;
  }
  for (const size_t size : {12287, 12288, 12289, 13056, 24576, 39990}) {
    ASSERT_EQ(Crc32c(data.data() + 3, size), ExtendCrc32cPortable(0, data.data() + 3, size));
  }
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
