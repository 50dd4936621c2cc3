#include "common/base/record_io.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// Returns all records, or the error that ended the reading.
absl::StatusOr<std::vector<std::string>> ReadAll(const std::string& bytes) {
  MemoryFileSystem files;
  files.Corrupt("/f", bytes);
  const auto file = files.OpenForRead("/f");
  RecordReader reader(file->get(), "/f");
  std::vector<std::string> records;
  std::string record;
  while (true) {
    const absl::StatusOr<bool> more = reader.Next(&record);
    if (!more.ok()) return more.status();
    if (!*more) return records;
    records.push_back(record);
  }
}

std::string Framed(const std::vector<std::string>& records) {
  std::string bytes;
  for (const std::string& record : records) AppendRecord(record, &bytes);
  return bytes;
}

TEST(RecordIo, RoundTrips) {
  const std::vector<std::string> records = {"", "a", std::string(100000, 'x'),
                                            std::string(9 << 20, 'y')};
  const auto read = ReadAll(Framed(records));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, records);
  EXPECT_TRUE(ReadAll("")->empty());
}

TEST(RecordIo, WritesTheDocumentedBytes) {
  // One record "foo". Its checksums come from a separate bitwise CRC-32C, not from our code.
  const std::string expected(
      "\x03\0\0\0\0\0\0\0\xb0\x99\x49\x0e"
      "foo"
      "\x61\x8a\xbe\xfe",
      19);
  EXPECT_EQ(Framed({"foo"}), expected);
}

TEST(RecordIo, DetectsEveryTruncationAndFlippedBit) {
  const std::string good = Framed({"first", "second record"});
  const size_t first_end = Framed({"first"}).size();
  for (size_t size = 1; size < good.size(); ++size) {
    if (size == first_end) continue;  // the file ends after its first record, so it is valid
    ASSERT_TRUE(absl::IsDataLoss(ReadAll(good.substr(0, size)).status())) << size;
  }
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    ASSERT_TRUE(absl::IsDataLoss(ReadAll(bad).status())) << bit;
  }
}

TEST(RecordIo, DetectsATruncatedRecordWithoutReadingIt) {
  const std::string good = Framed({"first", "second"});
  const size_t begin = Framed({"first"}).size();
  for (size_t size = begin + 1; size < good.size(); ++size) {
    const bool in_length = size < begin + 12;  // the 8 bytes of the length and their checksum
    const std::string expected = absl::StrCat(
        "/f at byte 21: the file ends at byte ", size, ", within ",
        in_length ? "the length of a record" : "a record of 6 bytes that would end at byte 43",
        "; copy or make the file again");
    EXPECT_EQ(ReadAll(good.substr(0, size)).status().message(), expected) << size;
  }
}

// Knows its size from before it was shortened, as a file of the machine's file system does.
class ShortenedFile final : public ReadableFile {
 public:
  ShortenedFile(const ReadableFile* file, int64_t earlier_size)
      : file_(file), earlier_size_(earlier_size) {}
  int64_t size_bytes() const override { return earlier_size_; }
  absl::Status ReadAt(int64_t offset, void* destination, int64_t size) const override {
    return file_->ReadAt(offset, destination, size);
  }
  absl::StatusOr<Payload> Map() const override { return file_->Map(); }

 private:
  const ReadableFile* const file_;
  const int64_t earlier_size_;
};

TEST(RecordIo, NamesTheEndOfAFileThatWasShortenedAfterItWasOpened) {
  const std::string good = Framed({"first", "second"});
  MemoryFileSystem files;
  for (const int64_t size : {10, 30, 40}) {
    files.Corrupt("/f", good.substr(0, size));
    const auto file = files.OpenForRead("/f");
    const ShortenedFile shortened(file->get(), static_cast<int64_t>(good.size()));
    RecordReader reader(&shortened, "/f", 21);
    std::string record;
    const absl::Status status = reader.Next(&record).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("/f at byte 21: the file is shorter than when it was "
                                       "opened: /f ends at byte ",
                                       size, ", expected at least ")));
    EXPECT_EQ(reader.offset(), 21);
  }
}

TEST(RecordIo, ErrorsNamePathOffsetAndGzip) {
  std::string bad = Framed({"first", "second"});
  bad.back() ^= 1;
  EXPECT_THAT(std::string(ReadAll(bad).status().message()), HasSubstr("/f at byte 21: checksum"));
  EXPECT_THAT(std::string(ReadAll("\x1f\x8b\x08 and more bytes").status().message()),
              HasSubstr("gzip"));
}

TEST(RecordIo, SkippingFindsTheSameRecordsWithoutReadingThem) {
  MemoryFileSystem files;
  const std::vector<std::string> records = {"abc", "", std::string(5000, 'x'), "end"};
  std::string bytes = Framed(records);
  bytes[13] ^= 1;  // a bit of the first record's data
  files.Corrupt("/f", bytes);
  const auto file = files.OpenForRead("/f");
  RecordReader index(file->get(), "/f");
  std::vector<int64_t> offsets;
  while (true) {
    offsets.push_back(index.offset());
    const absl::StatusOr<bool> more = index.Skip();
    ASSERT_TRUE(more.ok()) << more.status();
    if (!*more) break;
  }
  ASSERT_EQ(offsets.size(), records.size() + 1);
  EXPECT_EQ(offsets.back(), static_cast<int64_t>(bytes.size()));
  std::string record;
  for (size_t i = 0; i < records.size(); ++i) {
    RecordReader reader(file->get(), "/f", offsets[i]);
    const absl::StatusOr<bool> got = reader.Next(&record);
    EXPECT_EQ(got.ok(), i != 0) << got.status();
    if (i != 0) {
      EXPECT_EQ(record, records[i]);
    }
  }
  // Cut the file everywhere except between two records.
  for (size_t size = 0; size < bytes.size(); ++size) {
    files.Corrupt("/f", bytes.substr(0, size));
    const auto cut = files.OpenForRead("/f");
    RecordReader reader(cut->get(), "/f");
    absl::StatusOr<bool> more = true;
    while (more.ok() && *more) more = reader.Skip();
    const bool between = std::find(offsets.begin(), offsets.end(), size) != offsets.end();
    EXPECT_EQ(more.ok(), between) << size;
  }
}

}  // namespace
}  // namespace pushpull
