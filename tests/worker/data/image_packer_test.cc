// A device must read from packed images exactly what the preprocessor makes of them, bit for bit.
#include "worker/data/image_packer.h"

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/random.h"
#include "kernels/cpu/reference_operators.h"
#include "kernels/memory.h"
#include "tests/testkit/data/data_test_util.h"

namespace pushpull {
namespace {

ImageInput InputOf(const InputShape& shape) {
  ImageInput input = {shape.height, shape.width, shape.channels, {}};
  if (shape.keep_aspect_ratio.has_value()) {
    std::copy_n(shape.keep_aspect_ratio->pad_value.begin(), 3, input.padding);
  }
  return input;
}

class PackedBatch {
 public:
  PackedBatch(const InputShape& shape, int64_t samples)
      : shape_(shape),
        samples_(samples),
        memory_(*HostMemory()->Allocate(ImageBlockBytes(samples, shape.num_elements()))),
        packer(shape, samples, memory_->data()) {
    packer.Begin(samples);
  }

  // Returns what a network reads of all samples.
  std::vector<float> Read() {
    const ImageInput input = InputOf(shape_);
    EXPECT_LE(packer.packed_images().bytes, memory_->bytes());
    EXPECT_EQ(CheckPackedImages(input, samples_, packer.packed_images()), absl::OkStatus());
    std::vector<float> images(samples_ * shape_.num_elements());
    MakeReferenceOperators<float>()->SampleImages(input, samples_, memory_->data(), images.data());
    return images;
  }

 private:
  const InputShape shape_;
  const int64_t samples_;
  const std::unique_ptr<Memory> memory_;

 public:
  ImagePacker packer;
};

// An image after random edits. Images with i mod 10 >= 8 may be too large to be packed as they are.
EditableImage DrawImage(int64_t i, const InputShape& shape) {
  CounterRandom random(5, static_cast<uint64_t>(i));
  const auto below = [&random](int end) { return static_cast<int>(random.NextBelow(end)); };
  const int most = i % 10 >= 8 ? 6 : 2;
  const int height = 1 + below(most * shape.height), width = 1 + below(most * shape.width);
  Image drawn = MakeImage(height, width, below(3) == 0 ? 1 : shape.channels);
  EditableImage image;
  image.Take(&drawn);
  if (i % 10 == 0) return image;
  if (below(2) == 0) image.MirrorColumns();
  if (below(3) == 0) image.RotateCounterClockwise();
  if (below(2) == 0) {
    const int h = 1 + below(image.height()), w = 1 + below(image.width());
    image.Crop({below(image.height() - h + 1), below(image.width() - w + 1), h, w});
  }
  if (below(3) == 0) image.Pad(image.height() + 3, image.width() + 2, 1, 2, {9.0f, 80.0f, 250.0f});
  if (below(4) == 0) {  // a window in the padding, maybe outside of the image
    image.Crop({image.height() - 1, 0, 1, image.width()});
  }
  if (i % 10 == 7) image.Floats()[0] += 0.5f;
  return image;
}

TEST(ImagePackerTest, DevicesReadTheSameAsThePreprocessor) {
  InputShape square = {20, 20, 3, AspectRatioResize{10, 20, {100.0f, 50.0f, 25.0f}}};
  for (const InputShape& shape : {InputShape{17, 23, 3}, InputShape{12, 9, 1}, square}) {
    constexpr int64_t kSamples = 200;
    PackedBatch batch(shape, kSamples);
    Preprocessor preprocessor(shape);
    std::vector<float> expected(kSamples * shape.num_elements());
    for (int64_t i = 0; i < kSamples; ++i) {
      const Shift shift = {static_cast<int>(i % 5) - 2, static_cast<int>(i % 3) - 1};
      EditableImage image = DrawImage(i, shape);
      batch.packer.Add(i, shift, &image, &preprocessor);
      image = DrawImage(i, shape);
      preprocessor.Run(image.View(), shift, expected.data() + i * shape.num_elements());
    }
    const std::vector<float> got = batch.Read();
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i], expected[i]) << "sample " << i / shape.num_elements();
    }
  }
}

TEST(ImagePackerTest, PacksOnlyTheVisiblePart) {
  const InputShape shape = {8, 8, 3};
  PackedBatch batch(shape, 3);
  Preprocessor preprocessor(shape);
  EditableImage images[3];
  for (EditableImage& image : images) {
    Image drawn = MakeImage(100, 100, 3);
    image.Take(&drawn);
  }
  images[0].Crop({10, 20, 4, 6});
  images[1].Crop({10, 20, 16, 16});  // as much as goes
  images[2].Crop({10, 20, 16, 17});
  for (int i = 0; i < 3; ++i) batch.packer.Add(i, {}, &images[i], &preprocessor);
  const PackedImage* const packed = batch.packer.packed_images().images();
  EXPECT_EQ(packed[0].height, 4);
  EXPECT_EQ(packed[0].width, 6);
  EXPECT_EQ(packed[1].is_input, 0);
  EXPECT_EQ(packed[2].is_input, 1);
  EXPECT_EQ(batch.packer.packed_images().bytes,
            ImageHeaderBytes(3) + AlignedImageBytes(4 * 6 * 3) + 16 * 16 * 3 + 8 * 8 * 3 * 4);
  batch.packer.Begin(1);
  EXPECT_EQ(batch.packer.packed_images().bytes, ImageHeaderBytes(1));
}

TEST(ImagePackerTest, ThreadsPackTheSameImagesInAnyOrder) {
  const InputShape shape = {9, 7, 3};
  constexpr int64_t kSamples = 64;
  std::vector<float> expected;
  for (int round = 0; round < 8; ++round) {
    PackedBatch batch(shape, kSamples);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Preprocessor preprocessor(shape);
        for (int64_t i = t; i < kSamples; i += 4) {
          EditableImage image = DrawImage(i, shape);
          batch.packer.Add(i, {1, -1}, &image, &preprocessor);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const std::vector<float> got = batch.Read();
    if (round == 0) expected = got;
    EXPECT_EQ(got, expected);
  }
}

TEST(ImagePackerTest, ImagesNeverOverlap) {
  const InputShape shape = {1, 1, 3};
  constexpr int64_t kSamples = 100000;
  constexpr int kThreads = 4;
  PackedBatch batch(shape, kSamples);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Preprocessor preprocessor(shape);
      Image drawn = MakeImage(1, 1, 3);
      EditableImage image;
      image.Take(&drawn);
      for (int64_t i = t; i < kSamples; i += kThreads) {
        batch.packer.Add(i, {}, &image, &preprocessor);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(batch.packer.packed_images().bytes,
            ImageHeaderBytes(kSamples) + kSamples * AlignedImageBytes(3));
}

}  // namespace
}  // namespace pushpull
