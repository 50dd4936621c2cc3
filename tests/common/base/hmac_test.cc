#include "common/base/hmac.h"

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

// RFC 4231, test case 2. The MAC begins with the bytes 5b dc c1 46 bf 60 75 4e.
TEST(HmacTest, MatchesTheVectorOfRfc4231) {
  EXPECT_EQ(ShortHmac("Jefe", "what do ya want for nothing?"), 0x4e7560bf46c1dc5bu);
  EXPECT_EQ(absl::BytesToHexString(Hmac("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(HmacTest, DependsOnTheKey) {
  const std::string key = NewHmacKey();
  EXPECT_EQ(key.size(), 32);
  EXPECT_NE(key, NewHmacKey());
  EXPECT_NE(ShortHmac(key, "x"), ShortHmac(NewHmacKey(), "x"));
}

}  // namespace
}  // namespace pushpull
