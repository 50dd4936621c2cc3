#include "common/base/utf8.h"

#include <string>

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

TEST(Utf8Test, CutsBetweenCharacters) {
  EXPECT_EQ(ShortUtf8("", 10), "");
  EXPECT_EQ(ShortUtf8("0123456789", 10), "0123456789");
  EXPECT_EQ(ShortUtf8("01234567890", 10), "0123456...");
  EXPECT_EQ(ShortUtf8("01234\xc3\xa9\xc3\xa9\xc3\xa9", 10), "01234\xc3\xa9...");
  EXPECT_EQ(ShortUtf8("012345\xc3\xa9\xc3\xa9\xc3\xa9", 10), "012345...");
  EXPECT_EQ(ShortUtf8("0123456\xff\xff", 10), "0123456...") << "each would need three bytes";
  EXPECT_EQ(ShortUtf8("0123456\xff", 10), "0123456\xef\xbf\xbd");
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += i % 3 == 0 ? "\xf0\x9f\x98\x80" : i % 3 == 1 ? "\xe2\x82\xac" : "a";
  }
  for (size_t bytes = 0; bytes <= text.size(); ++bytes) {
    const std::string cut = ShortUtf8(absl::string_view(text).substr(0, bytes), 16);
    EXPECT_LE(cut.size(), 16u);
    EXPECT_TRUE(IsUtf8(cut)) << cut;
  }
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
