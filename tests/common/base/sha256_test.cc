#include "common/base/sha256.h"

#include <string>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

// The examples of FIPS 180-4.
TEST(Sha256Test, GivesThePublishedDigests) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Sha256 digest;
  const std::string thousand(1000, 'a');
  for (int i = 0; i < 1000; ++i) digest.Update(thousand.data(), thousand.size());
  EXPECT_EQ(digest.FinishHex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace pushpull
