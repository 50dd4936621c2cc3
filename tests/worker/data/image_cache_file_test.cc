#include "worker/data/image_cache_file.h"

#include <cstdlib>
#include <cstring>
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/worker/data/varied_source.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kPath[] = "/a.cache";
constexpr int64_t kExamplesInFile = 6;

ImageCacheIdentity Identity() {
  ImageCacheIdentity identity;
  identity.key = "0123456789abcdef0123456789abcdef";
  identity.num_examples = kExamplesInFile;
  identity.num_classes = VariedSource::kNumClasses;
  identity.max_side = 12;
  return identity;
}

std::string WriteFile(MemoryFileSystem& files) {
  const VariedSource source(kExamplesInFile);
  auto writer = *ImageCacheWriter::Create(files, kPath, Identity());
  Example example;
  for (const int64_t i : {0, 1, 3, 2, 4, 5}) {
    EXPECT_EQ(source.Get(i, &example), absl::OkStatus());
    EXPECT_EQ(writer->Add(i, example), absl::OkStatus());
  }
  EXPECT_EQ(writer->Finish(), absl::OkStatus());
  return *ReadWholeFile(files, kPath);
}

absl::Status OpenBytes(MemoryFileSystem& files, const std::string& bytes) {
  files.Corrupt(kPath, bytes);
  return ImageCacheReader::Open(files, kPath, Identity()).status();
}

TEST(ImageCacheFile, ReadsWhatWasWritten) {
  MemoryFileSystem files;
  const std::string bytes = WriteFile(files);
  const auto reader = ImageCacheReader::Open(files, kPath, Identity());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->size(), kExamplesInFile);
  EXPECT_EQ((*reader)->size_bytes(), static_cast<int64_t>(bytes.size()));
  const VariedSource source(kExamplesInFile);
  Example read;
  Example expected;
  read.boxes.resize(9);  // Read must discard the old boxes
  for (int64_t i = kExamplesInFile - 1; i >= 0; --i) {
    ASSERT_EQ((*reader)->Get(i, &read), absl::OkStatus());
    ASSERT_EQ(source.Get(i, &expected), absl::OkStatus());
    ExpectSameExample(read, expected);
  }
}

// Other builds read the same cache files. After a deliberate change of the layout, raise
// kImageCacheVersion and run this test with PUSHPULL_UPDATE_GOLDEN=1.
TEST(ImageCacheFile, BytesHaveNotChanged) {
  MemoryFileSystem memory;
  const std::string bytes = WriteFile(memory);
  PosixFileSystem files;
  const std::string path = PUSHPULL_SOURCE_DIR "/tests/golden/image_cache/six_images.cache";
  if (std::getenv("PUSHPULL_UPDATE_GOLDEN") != nullptr) {
    ASSERT_EQ(WriteFileAtomically(files, path, bytes), absl::OkStatus());
  }
  const auto golden = ReadWholeFile(files, path);
  ASSERT_TRUE(golden.ok()) << golden.status();
  EXPECT_TRUE(*golden == bytes) << path << " differs";
  EXPECT_TRUE(ImageCacheReader::Open(files, path, Identity()).ok());
}

TEST(ImageCacheFile, OpenDetectsEveryTruncation) {
  MemoryFileSystem files;
  const std::string bytes = WriteFile(files);
  for (size_t size = 0; size < bytes.size(); ++size) {
    const absl::Status status = OpenBytes(files, bytes.substr(0, size));
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << " " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(kPath));
  }
  EXPECT_EQ(OpenBytes(files, bytes + "x").code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(OpenBytes(files, bytes), absl::OkStatus());
}

TEST(ImageCacheFile, DetectsEveryFlippedBit) {
  MemoryFileSystem files;
  std::string bytes = WriteFile(files);
  ImageCacheFooter footer;
  std::memcpy(&footer, bytes.data() + bytes.size() - sizeof(footer), sizeof(footer));
  const VariedSource source(kExamplesInFile);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    files.Corrupt(kPath, bytes);
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    const auto reader = ImageCacheReader::Open(files, kPath, Identity());
    const bool in_pixels = i >= sizeof(ImageCacheHeader) && i < footer.table_offset;
    ASSERT_EQ(reader.ok(), in_pixels) << i;
    if (!in_pixels) {
      EXPECT_EQ(reader.status().code(), absl::StatusCode::kDataLoss) << i << reader.status();
      continue;
    }
    int num_bad = 0;
    Example read;
    Example expected;
    for (int64_t k = 0; k < kExamplesInFile; ++k) {
      const absl::Status status = (*reader)->Get(k, &read);
      if (status.ok()) {
        ASSERT_EQ(source.Get(k, &expected), absl::OkStatus());
        ExpectSameExample(read, expected);
        continue;
      }
      ++num_bad;
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(kPath), HasSubstr(absl::StrCat("image ", k, " at byte ")),
                        HasSubstr("checksum")));
    }
    EXPECT_EQ(num_bad, 1) << i;
  }
}

TEST(ImageCacheFile, RefusesACacheOfOtherData) {
  MemoryFileSystem files;
  WriteFile(files);
  const std::vector<std::function<void(ImageCacheIdentity*)>> changes = {
      [](ImageCacheIdentity* id) { id->key[31] = '0'; },
      [](ImageCacheIdentity* id) { id->num_examples = 7; },
      [](ImageCacheIdentity* id) { id->num_classes = 6; },
      [](ImageCacheIdentity* id) { id->max_side = 0; },
  };
  for (const auto& change : changes) {
    ImageCacheIdentity identity = Identity();
    change(&identity);
    const absl::Status status = ImageCacheReader::Open(files, kPath, identity).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(kPath), HasSubstr("other data"), HasSubstr("6 images")));
  }
  EXPECT_EQ(ImageCacheReader::Open(files, "/none", Identity()).status().code(),
            absl::StatusCode::kNotFound);
}

// A file whose checksums are right but whose numbers are wrong, as from another program or an
// attacker.
class SealedFile {
 public:
  explicit SealedFile(const std::string& bytes) : bytes_(bytes) {
    footer = Load<ImageCacheFooter>(bytes_.size() - sizeof(footer));
    header = Load<ImageCacheHeader>(0);
    for (uint64_t i = 0; i < footer.num_examples; ++i) {
      table.push_back(Load<ImageCacheEntry>(footer.table_offset + i * sizeof(ImageCacheEntry)));
    }
    for (uint64_t i = 0; i < footer.num_boxes; ++i) {
      boxes.push_back(Load<ImageCacheBox>(footer.table_offset +
                                          table.size() * sizeof(ImageCacheEntry) +
                                          i * sizeof(ImageCacheBox)));
    }
  }

  std::string Sign() {
    std::string out(reinterpret_cast<const char*>(&header), sizeof(header));
    out += bytes_.substr(sizeof(header), table_begin_() - sizeof(header));
    std::string tables(reinterpret_cast<const char*>(table.data()),
                       table.size() * sizeof(ImageCacheEntry));
    tables.append(reinterpret_cast<const char*>(boxes.data()),
                  boxes.size() * sizeof(ImageCacheBox));
    out += tables;
    footer.table_crc = Crc32c(tables);
    footer.footer_crc = ExtendCrc32c(Crc32c(&header, sizeof(header)), &footer,
                                     offsetof(ImageCacheFooter, footer_crc));
    out.append(reinterpret_cast<const char*>(&footer), sizeof(footer));
    return out;
  }

  ImageCacheHeader header;
  ImageCacheFooter footer;
  std::vector<ImageCacheEntry> table;
  std::vector<ImageCacheBox> boxes;

 private:
  template <typename T>
  T Load(size_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(value));
    return value;
  }
  size_t table_begin_() const {
    return bytes_.size() - sizeof(footer) - boxes.size() * sizeof(ImageCacheBox) -
           table.size() * sizeof(ImageCacheEntry);
  }

  const std::string bytes_;
};

TEST(ImageCacheFile, RefusesNumbersThatPointOutsideTheFile) {
  MemoryFileSystem files;
  const std::string bytes = WriteFile(files);
  ASSERT_EQ(SealedFile(bytes).Sign(), bytes);
  const std::vector<std::function<void(SealedFile*)>> changes = {
      [](SealedFile* f) { f->table[2].height = 0; },
      [](SealedFile* f) { f->table[2].width = 0xffffffffu; },
      [](SealedFile* f) { f->table[2].height = 1000; },
      [](SealedFile* f) { f->table[2].channels = 2; },
      [](SealedFile* f) { f->table[0].pixels_offset = 0; },
      [](SealedFile* f) { f->table[5].pixels_offset += 1; },
      [](SealedFile* f) { f->table[5].pixels_offset = ~uint64_t{0}; },
      [](SealedFile* f) { f->table[1].label = VariedSource::kNumClasses; },
      [](SealedFile* f) { f->table[3].first_box = ~uint64_t{0}; },
      [](SealedFile* f) { f->table[3].num_boxes = 100; },
      [](SealedFile* f) { f->boxes[0].label = VariedSource::kNumClasses; },
      [](SealedFile* f) { f->footer.num_boxes = ~uint64_t{0} / sizeof(ImageCacheBox); },
      [](SealedFile* f) { f->footer.num_boxes -= 1; },
      [](SealedFile* f) { f->footer.table_offset = ~uint64_t{0}; },
      [](SealedFile* f) { f->footer.table_offset -= 1; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    SealedFile file(bytes);
    changes[i](&file);
    const absl::Status status = OpenBytes(files, file.Sign());
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << i << " " << status;
  }
}

TEST(ImageCacheFile, RefusesAnotherVersion) {
  MemoryFileSystem files;
  SealedFile file(WriteFile(files));
  file.header.version = file.footer.version = kImageCacheVersion + 1;
  const absl::Status status = OpenBytes(files, file.Sign());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("version 4"), HasSubstr("this program's is 3")));
}

TEST(ImageCacheFile, KeepsTheFirstWriteError) {
  MemoryFileSystem files;
  auto writer = *ImageCacheWriter::Create(files, kPath, Identity());
  files.SetFault(FileFault{FileFault::Kind::kDiskFull, 1, false});
  const VariedSource source(kExamplesInFile);
  Example example;
  for (int64_t i = 0; i < kExamplesInFile; ++i) {
    ASSERT_EQ(source.Get(i, &example), absl::OkStatus());
    EXPECT_EQ(writer->Add(i, example).ok(), i < 1);
  }
  EXPECT_EQ(writer->Finish().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace pushpull
