#include "common/base/utf8.h"

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace pushpull {
namespace {

TEST(Utf8Test, ReplacesOnlyWhatIsNotUtf8) {
  for (const char* text : {"", "plain", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "a\"b\\c\n"}) {
    EXPECT_EQ(ValidUtf8(text), text);
  }
  EXPECT_EQ(ValidUtf8("caf\xe9"), "caf\xef\xbf\xbd");
  EXPECT_EQ(ValidUtf8("\xff|\xc3"), "\xef\xbf\xbd|\xef\xbf\xbd");
}

TEST(Utf8Test, OnlyAByteOrderMarkAtTheBeginningIsLeftOut) {
  EXPECT_EQ(WithoutByteOrderMark("\xef\xbb\xbf"
                                 "a"),
            "a");
  EXPECT_EQ(WithoutByteOrderMark("\xef\xbb\xbf"), "");
  for (const char* text : {"", "a", "\xef\xbb", "a\xef\xbb\xbf"}) {
    EXPECT_EQ(WithoutByteOrderMark(text), text);
  }
}

TEST(Utf8Test, AJsonLineHoldsAnyBytesInKeysAndValues) {
  nlohmann::ordered_json value;
  value["b\xe9"] = "\xff";
  value["a"] = 1.5;
  EXPECT_EQ(JsonLine(value), "{\"b\xef\xbf\xbd\":\"\xef\xbf\xbd\",\"a\":1.5}");
}

}  // namespace
}  // namespace pushpull
