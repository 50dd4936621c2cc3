// Compares what a device reads of packed images with a reference in double, and bit for bit with
// the CPU.
#include "kernels/cuda/images.h"

#include <cstring>

#include "kernels/cpu/reference_operators.h"
#include "tests/kernels/cuda/device_array.h"
#include "tests/testkit/kernels/compare.h"
#include "tests/testkit/kernels/random_images.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

template <typename T>
class ImagesTest : public DeviceFixture<testing::Test> {};
using Types = testing::Types<float, Bfloat16>;
TYPED_TEST_SUITE(ImagesTest, Types);

TYPED_TEST(ImagesTest, ReadsTheSameAsTheHost) {
  using T = TypeParam;
  const auto reference = MakeReferenceOperators<float>();
  for (const ImageInput& input :
       {ImageInput{1, 1, 1, {10, 0, 0}}, ImageInput{7, 5, 3, {1, 100, 200}},
        ImageInput{33, 65, 3, {}}, ImageInput{40, 31, 1, {90, 0, 0}}}) {
    const int64_t elements = input.num_elements();
    for (const int64_t samples : {int64_t{1}, int64_t{3}, int64_t{16}}) {
      SCOPED_TRACE(testing::Message() << input.height << "x" << input.width << "x" << input.channels
                                      << ", " << samples << " samples");
      const std::vector<char> block = RandomImages(input, samples, 7 * samples);
      ASSERT_EQ(CheckPackedImages(input, samples, ViewOf(block)), absl::OkStatus());
      DeviceArray<char> on_device(block);
      DeviceArray<T> images(samples * elements);
      Queue queue;
      SampleImages(&queue, input, samples, on_device.data(), images.data());
      const std::vector<T> got = images.Take();
      const std::vector<double> want = ReadImagesInDouble(input, samples, block);
      ExpectClose("images", want, ToDoubles(got), sizeof(T) == 4 ? 2e-5 : 5e-3, 1.0);

      std::vector<float> on_host(samples * elements);
      reference->SampleImages(input, samples, block.data(), on_host.data());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(ToFloat(got[i]), ToFloat(Nearest<T>(on_host[i]))) << i;
      }
    }
  }
}

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
