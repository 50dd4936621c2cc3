// Tests that an image cache is not used for other labels and boxes of the same images.
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/record_io.h"
#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/test_folder.h"
#include "worker/data/example_codec.h"
#include "worker/data/idx_source.h"
#include "worker/data/image_cache.h"
#include "worker/data/image_folder_source.h"
#include "worker/data/record_source.h"
#include "worker/data/sampled_source.h"
#include "worker/data/voc_source.h"

namespace pushpull {
namespace {

constexpr int kNumImages = 40;
constexpr int kWithBox = 19;  // not among the 16 examples that are compared

// Boxes of class "b" are found only with the second map. Both maps show the same names.
constexpr char kWrongMap[] = R"(item { id: 1 name: "x" display_name: "B" })";
constexpr char kCorrectMap[] = R"(item { id: 1 name: "b" display_name: "B" })";

class ImageCacheIdentityTest : public testing::Test {
 protected:
  // Prepares the cache of a source, and opens it with another one of the same data.
  template <typename OpenFn>
  std::unique_ptr<ImageSource> Cached(const OpenFn& open) {
    ThreadPool pool(2);
    SteadyClock clock;
    EXPECT_EQ(PrepareImageCache(files_, *open(), options_, &pool, &clock, {}), absl::OkStatus());
    auto cached = OpenImageCache(files_, open(), options_);
    EXPECT_TRUE(cached.ok()) << cached.status();
    return cached.ok() ? *std::move(cached) : nullptr;
  }
  // Returns the label of one example.
  static int32_t LabelOf(const std::unique_ptr<ImageSource>& source, int64_t index) {
    Example example;
    EXPECT_EQ(source->Get(index, &example), absl::OkStatus());
    return example.label;
  }
  // Returns the labels of the boxes of example kWithBox.
  static std::vector<int32_t> Labels(const std::unique_ptr<ImageSource>& source) {
    Example example;
    EXPECT_EQ(source->Get(kWithBox, &example), absl::OkStatus());
    std::vector<int32_t> labels;
    for (const Box& box : example.boxes) labels.push_back(box.label);
    return labels;
  }

  // Writes the record file. The box of example kWithBox has this class, and those of the others B.
  void WriteRecords(const std::string& class_text) {
    std::string bytes;
    for (int i = 0; i < kNumImages; ++i) {
      AnnotatedImage image{absl::StrCat(i, ".png"), absl::StrCat(i), 2, 2, std::nullopt, "", {}};
      AnnotatedObject object;
      object.box = {0, 0, 1, 0.5f, 0};
      object.text = i == kWithBox ? class_text : "B";
      image.objects.push_back(object);
      AppendRecord(*EncodeExample(image, EncodePng(MakeImage(2, 2, 3))), &bytes);
    }
    folder_.Write("data.record", bytes);
  }
  std::unique_ptr<ImageSource> OpenRecords(const std::string& map) {
    RecordSourceOptions options;
    options.input_paths = {folder_.path() + "/data.record"};
    options.label_map = LabelMap::Parse(map, "map").value();
    options.num_classes = 2;
    auto source = RecordSource::Open(files_, options);
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  }

  const TestFolder folder_;
  PosixFileSystem files_;
  const ImageCacheOptions options_{folder_.path() + "/cache", 0};
};

TEST_F(ImageCacheIdentityTest, ACorrectedLabelMapGetsACacheOfItsOwn) {
  WriteRecords("b");
  EXPECT_TRUE(Labels(Cached([&] { return OpenRecords(kWrongMap); })).empty());
  EXPECT_THAT(Labels(Cached([&] { return OpenRecords(kCorrectMap); })), testing::ElementsAre(0));
}

TEST_F(ImageCacheIdentityTest, ASampleOfRecordsHasTheIdentityOfTheRecords) {
  WriteRecords("b");
  const auto sample = [&](const char* map) {
    return std::make_unique<SampledSource>(OpenRecords(map), 1);
  };
  EXPECT_TRUE(Labels(Cached([&] { return sample(kWrongMap); })).empty());
  EXPECT_THAT(Labels(Cached([&] { return sample(kCorrectMap); })), testing::ElementsAre(0));
}

TEST_F(ImageCacheIdentityTest, NewerRecordsGetACacheOfTheirOwn) {
  constexpr char kMap[] = R"(item { id: 1 name: "b" } item { id: 2 name: "c" display_name: "B" })";
  const std::string path = folder_.path() + "/data.record";
  WriteRecords("b");
  const auto time = std::filesystem::last_write_time(path);
  EXPECT_THAT(Labels(Cached([&] { return OpenRecords(kMap); })), testing::ElementsAre(0));
  WriteRecords("c");
  std::filesystem::last_write_time(path, time + std::chrono::seconds(2));
  EXPECT_THAT(Labels(Cached([&] { return OpenRecords(kMap); })), testing::ElementsAre(1));
}

TEST_F(ImageCacheIdentityTest, OtherBoxesOfAVocFolderGetACacheOfTheirOwn) {
  for (const char* name :
       {"VOC", "VOC/Annotations", "VOC/ImageSets", "VOC/ImageSets/Main", "VOC/JPEGImages"}) {
    std::filesystem::create_directory(absl::StrCat(folder_.path(), "/", name));
  }
  const auto write = [&](int i, const std::string& objects) {
    folder_.Write(absl::StrCat("VOC/Annotations/", i, ".xml"),
                  absl::StrCat("<annotation><size><width>2</width><height>2</height></size>",
                               objects, "</annotation>"));
  };
  constexpr char kObject[] =
      "<object><name>b</name><bndbox><xmin>0</xmin><ymin>0</ymin><xmax>1</xmax><ymax>2</ymax>"
      "</bndbox></object>";
  std::string ids;
  for (int i = 0; i < kNumImages; ++i) {
    absl::StrAppend(&ids, i, "\n");
    folder_.Write(absl::StrCat("VOC/JPEGImages/", i, ".jpg"), EncodeJpeg(MakeImage(2, 2, 3)));
    write(i, i == 0 ? absl::StrReplaceAll(kObject, {{"<name>b", "<name>B"}}) : "");
  }
  write(kWithBox, kObject);
  folder_.Write("VOC/ImageSets/Main/train.txt", ids);
  const auto open = [&](const char* map) {
    return [&, map] {
      auto source = VocSource::Open(std::make_unique<PosixFileSystem>(), folder_.path() + "/VOC",
                                    "train", LabelMap::Parse(map, "map").value(), 2);
      EXPECT_TRUE(source.ok()) << source.status();
      return *std::move(source);
    };
  };
  EXPECT_TRUE(Labels(Cached(open(kWrongMap))).empty());
  EXPECT_THAT(Labels(Cached(open(kCorrectMap))), testing::ElementsAre(0));
  write(kWithBox, absl::StrCat(kObject, kObject));
  EXPECT_THAT(Labels(Cached(open(kCorrectMap))), testing::ElementsAre(0, 0));
}

// The numbers of images and classes and the order of the names stay the same.
TEST_F(ImageCacheIdentityTest, AnImageInAnotherClassFolderGetsACacheOfItsOwn) {
  const std::string root = folder_.path() + "/images";
  for (const char* name : {"", "/a", "/b"}) std::filesystem::create_directory(root + name);
  const auto path = [&](const char* label, int i) {
    return absl::StrCat("images/", label, "/", 100 + i, ".png");
  };
  for (int i = 0; i < kNumImages; ++i) {
    folder_.Write(path(i <= kWithBox ? "a" : "b", i), EncodePng(MakeImage(2, 2, 3)));
  }
  const auto open = [&] {
    auto source = ImageFolderSource::Open(root, 2);
    EXPECT_TRUE(source.ok()) << source.status();
    return *std::move(source);
  };
  EXPECT_EQ(LabelOf(Cached(open), kWithBox), 0);
  std::filesystem::rename(absl::StrCat(folder_.path(), "/", path("a", kWithBox)),
                          absl::StrCat(folder_.path(), "/", path("b", kWithBox)));
  EXPECT_EQ(LabelOf(Cached(open), kWithBox), 1);
}

TEST_F(ImageCacheIdentityTest, OtherIdxLabelsGetACacheOfTheirOwn) {
  std::string labels(kNumImages, '\0');
  const auto write = [&](const char* name) {
    folder_.Write(name, Idx(0x801, {kNumImages}, labels));
  };
  folder_.Write("images", IdxImages(kNumImages, 2, 2));
  write("labels");
  const auto open = [&](const std::string& name) {
    return [&, name] {
      auto source = IdxSource::Open(folder_.path() + "/images", folder_.path() + "/" + name, 2);
      EXPECT_TRUE(source.ok()) << source.status();
      return *std::move(source);
    };
  };
  EXPECT_EQ(LabelOf(Cached(open("labels")), kWithBox), 0);
  labels[kWithBox] = '\1';
  write("other_labels");
  EXPECT_EQ(LabelOf(Cached(open("other_labels")), kWithBox), 1);
  write("labels");
  EXPECT_EQ(LabelOf(Cached(open("labels")), kWithBox), 1);
}

}  // namespace
}  // namespace pushpull
