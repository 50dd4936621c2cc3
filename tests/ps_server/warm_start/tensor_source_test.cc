#include "ps_server/warm_start/tensor_source.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "common/base/passing_error.h"
#include "protos/tensor_bundle.pb.h"
#include "ps_server/warm_start/sorted_table.h"
#include "tests/ps_server/warm_start/read_tensors.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/table_builder.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr char kPrefix[] = PUSHPULL_SOURCE_DIR "/tests/golden/tf_bundle/model.ckpt";
constexpr char kData[] = "/b/model.ckpt.data-00000-of-00001";

// A checkpoint that TensorFlow wrote (tests/reference/tensor_bundle_tf.py), in memory so that tests
// can damage it.
class TensorBundleTest : public testing::Test {
 protected:
  void SetUp() override {
    PosixFileSystem disk;
    index_ = *ReadWholeFile(disk, std::string(kPrefix) + ".index");
    data_ = *ReadWholeFile(disk, std::string(kPrefix) + ".data-00000-of-00001");
    ASSERT_TRUE(files_.MakeDirectory("/b").ok());
    Write(index_, data_);
  }

  void Write(const std::string& index, const std::string& data) {
    ASSERT_TRUE(WriteFileAtomically(files_, "/b/model.ckpt.index", index).ok());
    ASSERT_TRUE(WriteFileAtomically(files_, kData, data).ok());
  }

  absl::Status ReadAll() { return ReadAllTensors(files_, "/b/model.ckpt"); }

  MemoryFileSystem files_;
  std::string index_, data_;
};

TEST_F(TensorBundleTest, ReadsTensorflowsCheckpoint) {
  PosixFileSystem disk;
  const auto source = OpenTensorSource(disk, kPrefix);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_THAT((*source)->describe(), HasSubstr("TensorFlow checkpoint"));
  EXPECT_TRUE((*source)->is_tensorflow());
  const std::vector<SourceTensor>& tensors = (*source)->tensors();
  ASSERT_EQ(tensors.size(), 2u + 13 * 7 + 1);
  for (size_t number = 0; number + 1 < tensors.size(); ++number) {
    const SourceTensor& tensor = tensors[number];
    EXPECT_EQ(tensor.unusable, "");
    std::vector<float> values(tensor.num_elements());
    ASSERT_TRUE((*source)->Read(tensor, absl::MakeSpan(values)).ok()) << tensor.name;
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], static_cast<float>(number) + static_cast<float>(i) / 8) << tensor.name;
    }
  }
  EXPECT_EQ(tensors.back().name, "zz_global_step");
  EXPECT_EQ(tensors.back().unusable, "dtype 9 is not float32");
  const SourceTensor* const weights =
      (*source)->Find("FeatureExtractor/MobilenetV1/Conv2d_0/weights");
  ASSERT_NE(weights, nullptr);
  EXPECT_EQ(weights->shape, (std::vector<int64_t>{3, 3, 3, 2}));
  EXPECT_EQ((*source)->Find("scalar")->shape, std::vector<int64_t>());
  EXPECT_EQ((*source)->Find("nothing"), nullptr);
}

TEST_F(TensorBundleTest, DetectsEveryTruncation) {
  ASSERT_TRUE(ReadAll().ok());
  for (size_t size = 0; size < index_.size(); ++size) {
    Write(index_.substr(0, size), data_);
    EXPECT_EQ(ReadAll().code(), absl::StatusCode::kDataLoss) << size;
  }
  for (size_t size = 0; size + 8 < data_.size(); ++size) {  // the int64 at the end is not read
    Write(index_, data_.substr(0, size));
    EXPECT_EQ(ReadAll().code(), absl::StatusCode::kDataLoss) << size;
  }
}

TEST_F(TensorBundleTest, DetectsEveryFlippedBitThatMatters) {
  // Not read are the metaindex block (8 bytes and a trailer of 5), its handle, and the footer's
  // padding.
  int harmless = 0;
  for (size_t bit = 0; bit < 8 * index_.size(); ++bit) {
    std::string damaged = index_;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    Write(damaged, data_);
    const absl::Status status = ReadAll();
    if (status.ok()) ++harmless;
    if (bit / 8 + 300 < index_.size()) {
      EXPECT_FALSE(status.ok()) << bit;
    }
  }
  EXPECT_LT(harmless, 8 * 60);
  for (size_t at = 0; at + 8 < data_.size(); at += 3) {  // the int64 at the end is not read
    std::string damaged = data_;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (at % 8)));
    Write(index_, damaged);
    EXPECT_THAT(std::string(ReadAll().message()), HasSubstr("wrong checksum")) << at;
  }
}

TEST_F(TensorBundleTest, NamesAMissingDataFile) {
  ASSERT_TRUE(files_.RemoveFile(kData).ok());
  EXPECT_THAT(std::string(ReadAll().message()), HasSubstr("data-00000-of-00001"));
}

// The number of elements or the number of bytes does not fit into 64 bits.
TEST_F(TensorBundleTest, RefusesImpossibleShapes) {
  const int64_t large = int64_t{1} << 40;
  const std::vector<std::vector<int64_t>> shapes = {
      {large, large}, {large, 1 << 23, 2}, {-1}, {int64_t{1} << 61}, {int64_t{1} << 62, 4, 0}};
  for (const std::vector<int64_t>& shape : shapes) {
    for (const int dtype : {1, 9}) {
      tensorflow::BundleEntryProto entry;
      entry.set_dtype(dtype);
      for (const int64_t dimension : shape) entry.mutable_shape()->add_dim()->set_size(dimension);
      Write(WrapTableBlock(EncodeTableBlock({{"", "\x08\x01"}, {"w", entry.SerializeAsString()}})),
            data_);
      const absl::Status status = ReadAll();
      EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
      EXPECT_THAT(std::string(status.message()), HasSubstr("w has an impossible shape"));
    }
  }
}

TEST_F(TensorBundleTest, RefusesEntriesOutsideTheirDataFile) {
  const struct {
    int shard;
    int64_t offset, size, elements;
  } cases[] = {{0, 0, 8, 1}, {0, 0, 4, 2},  {0, 4, 8, 2},      {0, -4, 4, 1},
               {1, 0, 4, 1}, {-1, 0, 4, 1}, {0, 1 << 20, 4, 1}};
  for (const auto& c : cases) {
    tensorflow::BundleEntryProto entry;
    entry.set_dtype(1);
    entry.mutable_shape()->add_dim()->set_size(c.elements);
    entry.set_shard_id(c.shard);
    entry.set_offset(c.offset);
    entry.set_size(c.size);
    Write(WrapTableBlock(EncodeTableBlock({{"", "\x08\x01"}, {"w", entry.SerializeAsString()}})),
          "8 bytes.");
    EXPECT_THAT(std::string(ReadAll().message()), HasSubstr("w does not lie within its data file"))
        << c.shard << " " << c.offset << " " << c.size << " " << c.elements;
  }
}

TEST_F(TensorBundleTest, ReadsATensorWithoutElements) {
  tensorflow::BundleEntryProto entry;
  entry.set_dtype(1);
  entry.mutable_shape()->add_dim()->set_size(0);
  entry.set_crc32c(MaskCrc32c(Crc32c("")));
  Write(WrapTableBlock(EncodeTableBlock({{"", "\x08\x01"}, {"w", entry.SerializeAsString()}})), "");
  EXPECT_TRUE(ReadAll().ok()) << ReadAll();
}

// The keys repeat a long prefix: a file of 100 KB would need 500 MB in memory.
TEST(SortedTableTest, RefusesKeysThatGrowInMemory) {
  const std::string prefix(50000, 'a');
  std::string block = EncodeTableBlock({{prefix, ""}});
  block.resize(block.size() - 8);  // without restarts
  for (int i = 0; i < 10000; ++i) {
    block += std::string("\xd0\x86\x03\x01",
                         4);  // shares 50,000 bytes with the previous key and adds one
    block += std::string("\0b", 2);
  }
  block += std::string(4, '\0');
  const absl::Status status = ReadSortedTable(WrapTableBlock(block), "x").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("repeats its keys too often"));
}

TEST(SortedTableTest, RefusesAFileThatIsNoTable) {
  EXPECT_EQ(ReadSortedTable("", "x").status().code(), absl::StatusCode::kDataLoss);
  const absl::Status zeros = ReadSortedTable(std::string(100, '\0'), "x").status();
  EXPECT_EQ(zeros.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(zeros.message()), HasSubstr("x: its last bytes are not those of a"));
}

TEST(TensorSourceTest, NamesTheFileItLookedFor) {
  MemoryFileSystem files;
  const absl::Status status = OpenTensorSource(files, "/models/model.ckpt").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/models/model.ckpt.index does not exist"));
}

TEST(TensorSourceTest, AnErrorOfTheDiskIsNotAMissingFile) {
  MemoryFileSystem disk;
  ASSERT_TRUE(disk.MakeDirectory("/models").ok());
  ASSERT_TRUE(WriteFileAtomically(disk, "/models/model.ckpt.index", "x").ok());
  ASSERT_TRUE(disk.MakeDirectory("/models/ckpt-00000002").ok());
  FailingReads files(&disk);
  const absl::Status failure = MarkPassing(absl::UnavailableError("stale file handle"));
  using What = FailingReads::What;
  const auto open = [&](What what, const std::string& ending, const std::string& path) {
    files.Fail(what, ending, failure, 100);
    return OpenTensorSource(files, path).status();
  };
  for (const absl::Status& status :
       {open(What::kGetInfo, "/models/model.ckpt", "/models/model.ckpt"),
        open(What::kGetInfo, "model.ckpt.index", "/models/model.ckpt"),
        open(What::kGetInfo, "MANIFEST.json", "/models/ckpt-00000002"),
        open(What::kList, "/models", "/models")}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_TRUE(IsPassing(status)) << status;
  }
}

TEST(TensorSourceTest, SaysHowToConvertAnotherFile) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.MakeDirectory("/m").ok());
  for (const char* path : {"/m/resnet50.pth", "/m/model.pt", "/m/resnet_v1_50.ckpt"}) {
    ASSERT_TRUE(WriteFileAtomically(files, path, "bytes").ok());
    const absl::Status status = OpenTensorSource(files, path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), HasSubstr("safetensors.torch.save_file"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("TensorFlow's V1 format"));
  }
}

TEST(TensorSourceTest, SaysHowToConvertAFileOfKeras) {
  MemoryFileSystem files;
  for (const char* path : {"/m.weights.h5", "/m.hdf5", "/m.keras"}) {
    const absl::Status status = OpenTensorSource(files, path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << path;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    EXPECT_THAT(std::string(status.message()), HasSubstr("tf.train.Checkpoint(model=model)"));
  }
}

}  // namespace
}  // namespace pushpull
