#include "common/checkpoint/safetensors.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/random.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

absl::Status ParseError(const std::string& json, int64_t data_bytes) {
  return ParseSafetensorsHeader(json, data_bytes).status();
}

TEST(Safetensors, RoundTrips) {
  SafetensorsHeader header;
  header.tensors = {{"b/weights", "F32", {2, 3}},
                    {"a", "U8", {}},
                    {"empty", "F16", {0, 7}},
                    {"Ünïcode \"quoted\"\n", "I64", {1}}};
  header.metadata = {{"format", "pt"}, {"quote\"", "\\"}};
  const auto bytes = EncodeSafetensorsHeader(&header);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->size() % 64, 0);
  EXPECT_EQ(header.data_offset, bytes->size());
  const auto parsed = ParseSafetensorsHeader(bytes->substr(8), 24 + 1 + 8);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->metadata, header.metadata);
  ASSERT_EQ(parsed->tensors.size(), 4);
  const SafetensorsTensor* b = parsed->Find("b/weights");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b->begin, 1);
  EXPECT_EQ(b->end, 25);
  EXPECT_EQ(parsed->Find("b"), nullptr);

  MemoryFileSystem files;
  std::string data(33, '\0');
  data[0] = 42;
  const float last = 1.5f;
  std::memcpy(data.data() + 21, &last, 4);
  files.Corrupt("/f", *bytes + data);
  const auto reader = SafetensorsReader::Open(*files.OpenForRead("/f"), "/f");
  ASSERT_TRUE(reader.ok()) << reader.status();
  b = (*reader)->header().Find("b/weights");
  float value = 0.0f;
  ASSERT_EQ((*reader)->Read(*b, 20, &value, 4), absl::OkStatus());
  EXPECT_EQ(value, 1.5f);
  EXPECT_TRUE(absl::IsOutOfRange((*reader)->Read(*b, 21, &value, 4)));
  EXPECT_TRUE(absl::IsOutOfRange((*reader)->Read(*b, -1, &value, 4)));
}

TEST(Safetensors, WriterRefusesNonsense) {
  const auto error = [](std::vector<SafetensorsTensor> tensors) {
    SafetensorsHeader header;
    header.tensors = std::move(tensors);
    return EncodeSafetensorsHeader(&header).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(error({{"a", "F32", {1}}, {"a", "F32", {1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(error({{"__metadata__", "F32", {1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(error({{"a", "F33", {1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(error({{"a", "F32", {-1}}})));
  EXPECT_TRUE(absl::IsInvalidArgument(error({{"a", "F32", {int64_t{1} << 40, int64_t{1} << 40}}})));
}

TEST(Safetensors, AcceptsFilesFromOtherWriters) {
  // No padding, keys in another order, blanks, an empty file, and tensors that are not sorted by
  // name.
  EXPECT_EQ(ParseError(R"({ "x": {"data_offsets":[4, 8], "shape": [1], "dtype":"F32"},
                            "y": {"dtype":"I32","shape":[],"data_offsets":[0,4]} }   )",
                       8),
            absl::OkStatus());
  EXPECT_EQ(ParseError("{}", 0), absl::OkStatus());
  EXPECT_EQ(ParseError(R"({"__metadata__":{}})", 0), absl::OkStatus());
}

struct Attack {
  const char* json;
  int64_t data_bytes;
  const char* reason;
};

TEST(Safetensors, RefusesHostileHeadersWithTheReason) {
  const Attack attacks[] = {
      {"", 0, "begin with {"},
      {" {}", 0, "begin with {"},
      {"[]", 0, "begin with {"},
      {"{}x", 0, "not JSON"},
      {R"({"a":)", 0, "not JSON"},
      {"{\"a\xff\":{}}", 0, "not JSON"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8, "cover 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 0, "cover 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "begins at 4, expected 0"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},
           "b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "begins at 4, expected 8"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
           "b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
       12, "begins at 8, expected 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
           "a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8, "occurs twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4,
       "occurs twice"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, "occurs twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "occurs twice"},
      {R"({"__metadata__":{"k":1}})", 0, "unexpected a number"},
      {R"({"__metadata__":{"k":{"l":"m"}}})", 0, "unexpected an object"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4, "lacks one of"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", 4, "lacks one of"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}})", 4, "unexpected a number"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"evil":1}})", 4, "evil is unknown"},
      {R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4, "unknown dtype F31"},
      {R"({"a":{"dtype":5,"shape":[1],"data_offsets":[0,4]}})", 4, "unexpected a number"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "negative"},
      {R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4, "fraction"},
      {R"({"a":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "unexpected a string"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "unexpected an array"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "expected 4 bytes"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "expected 8 bytes"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})", 0,
       "overflow"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4, "2^63"},
      {R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,4]}})", 4,
       "fraction"},
      {R"({"a":null})", 0, "null"},
      {R"({"a":[]})", 0, "unexpected an array"},
      {R"({"a":{}})", 0, "lacks one of"},
      {R"({"a":true})", 0, "boolean"},
  };
  for (const Attack& attack : attacks) {
    const absl::Status status = ParseError(attack.json, attack.data_bytes);
    EXPECT_TRUE(absl::IsDataLoss(status)) << attack.json << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(attack.reason)) << attack.json;
  }
}

TEST(Safetensors, RefusesZeroBytesAndDeepNesting) {
  EXPECT_THAT(std::string(ParseError(std::string("{}\0 {\"hidden\"", 12), 0).message()),
              HasSubstr("zero byte"));
  EXPECT_TRUE(absl::IsDataLoss(ParseError("{\"a\":" + std::string(1000000, '['), 0)));
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_TRUE(absl::IsDataLoss(ParseError(deep, 0)));
  std::string rank = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1";
  for (int i = 0; i < 1000; ++i) rank += ",1";
  EXPECT_TRUE(absl::IsDataLoss(ParseError(rank + "],\"data_offsets\":[0,4]}}", 4)));
}

TEST(Safetensors, ChecksTheLengthInTheFilePrefix) {
  MemoryFileSystem files;
  for (const std::string& bytes :
       {std::string(), std::string("\2\0\0\0", 4), std::string("\3\0\0\0\0\0\0\0{}", 10),
        std::string(8, '\xff') + "{}", std::string("\1\xe1\xf5\5\0\0\0\0{}", 10)}) {
    files.Corrupt("/f", bytes);
    const absl::Status status = SafetensorsReader::Open(*files.OpenForRead("/f"), "/f").status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/f"));
  }
}

// A large file that contains only the length of its header.
class HeaderLengthFile final : public ReadableFile {
 public:
  int64_t size_bytes() const override { return int64_t{1} << 40; }
  absl::Status ReadAt(int64_t offset, void* destination, int64_t size) const override {
    if (offset != 0) return absl::InternalError("the header is read");
    std::memset(destination, 0, size);
    const int64_t length = SafetensorsHeader::kMaxHeaderBytes + 1;
    std::memcpy(destination, &length, sizeof(length));
    return absl::OkStatus();
  }
  absl::StatusOr<Payload> Map() const override { return absl::UnimplementedError(""); }
};

TEST(Safetensors, DoesNotReadAHeaderPastTheLimit) {
  const absl::Status status =
      SafetensorsReader::Open(std::make_unique<HeaderLengthFile>(), "/f").status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/f: header of 100000001 bytes in a file"));
}

// Random damage never crashes the parser, and every accepted header is consistent.
TEST(Safetensors, MutatedHeadersAreSafe) {
  const std::string good =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
  const std::string alphabet = "{}[]\":,0123456789-.eEaFdtsn \\u\x01\x80";
  CounterRandom random(5, 6);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string json = good;
    for (uint64_t n = random.NextBelow(4) + 1; n > 0; --n) {
      const size_t at = random.NextBelow(json.size());
      const char c = alphabet[random.NextBelow(alphabet.size())];
      if (random.NextBelow(3) == 0) {
        json.erase(at, 1);
      } else if (random.NextBelow(2) == 0) {
        json.insert(at, 1, c);
      } else {
        json[at] = c;
      }
    }
    const auto header = ParseSafetensorsHeader(json, 16);
    if (!header.ok()) continue;
    ++accepted;
    int64_t total = 0;
    for (const SafetensorsTensor& tensor : header->tensors) total += tensor.size_bytes();
    EXPECT_EQ(total, 16) << json;
  }
  EXPECT_GE(accepted, 100) << "harmless edits, such as another letter in a name, are accepted";
}

}  // namespace
}  // namespace pushpull
