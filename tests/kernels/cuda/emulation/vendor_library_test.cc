// What is asked of cuDNN and cuBLASLt, and what comes of their answers, with their stand-ins, which
// check every descriptor.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/file_system.h"
#include "kernels/cuda/vendor/open_libraries.h"
#include "tests/kernels/cuda/vendor/test_libraries.h"
#include "tests/testkit/kernels/same_convolution.h"

namespace pushpull::emulated_cuda {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr ProductKind kKinds[] = {ProductKind::kForward, ProductKind::kInputGradient,
                                  ProductKind::kWeightGradient};
constexpr int64_t kLimit = 1 << 20;

class VendorLibraryTest : public testing::Test {
 protected:
  ~VendorLibraryTest() override {
    unsetenv("FAKE_CUDNN");
    unsetenv("FAKE_CUBLASLT");
  }
  static ProductShape Shape3x3(ProductKind kind, bool bfloat16) {
    return {kind, SameConvolution({2, 7, 6, 8}, 16, 3, 2), bfloat16};
  }
  static ProductShape Pointwise(ProductKind kind, bool bfloat16) {
    return {kind, {{2, 7, 6, 8}, 16, 1, 1, {}}, bfloat16};
  }
};

TEST_F(VendorLibraryTest, CudnnTakesDeterministicEnginesWithinTheWorkspace) {
  const auto library = OpenTestCudnn().value();
  EXPECT_EQ(library->version(), "9.26.0");
  for (const ProductKind kind : kKinds) {
    const auto products = library->FindProducts(Shape3x3(kind, true), kLimit, 5).value();
    ASSERT_EQ(products.size(), 2);  // the stand-in's engines 3 and 4
    EXPECT_EQ(products[0]->workspace_bytes(), 0);
    EXPECT_EQ(products[1]->workspace_bytes(), 1000);
    EXPECT_EQ(products[0]->filter_order(), FilterOrder::kOutputsFirst);
  }
}

TEST_F(VendorLibraryTest, CudnnDoesNotRoundFloats) {
  const auto library = OpenTestCudnn().value();
  const auto products =
      library->FindProducts(Shape3x3(ProductKind::kForward, false), kLimit, 5).value();
  ASSERT_EQ(products.size(), 1);  // not the engine with tensor cores
  EXPECT_EQ(products[0]->workspace_bytes(), 1000);
}

TEST_F(VendorLibraryTest, CudnnHandsOutNoMoreThanAskedAndKeepsToTheLimit) {
  const auto library = OpenTestCudnn().value();
  const ProductShape shape = Shape3x3(ProductKind::kForward, true);
  EXPECT_EQ(library->FindProducts(shape, kLimit, 1).value().size(), 1);
  EXPECT_EQ(library->FindProducts(shape, 999, 5).value().size(), 1);
  setenv("FAKE_CUDNN", "no_engines", 1);
  EXPECT_EQ(library->FindProducts(shape, kLimit, 5).value().size(), 0);
}

TEST_F(VendorLibraryTest, CudnnGradientsOfWeightsAreFloatsIfItHasSuchEngines) {
  const auto library = OpenTestCudnn().value();
  const ProductShape shape = Shape3x3(ProductKind::kWeightGradient, true);
  EXPECT_TRUE(library->FindProducts(shape, kLimit, 1).value()[0]->float_result());
  setenv("FAKE_CUDNN", "no_float_result", 1);
  EXPECT_FALSE(library->FindProducts(shape, kLimit, 1).value()[0]->float_result());
}

TEST_F(VendorLibraryTest, CublasLtMultipliesPointwiseConvolutionsOnly) {
  const auto library = OpenTestCublasLt().value();
  EXPECT_EQ(library->version(), "13.4.1");
  for (const ProductKind kind : kKinds) {
    for (const bool bfloat16 : {false, true}) {
      EXPECT_EQ(library->FindProducts(Pointwise(kind, bfloat16), kLimit, 5).value().size(), 2);
      EXPECT_EQ(library->FindProducts(Pointwise(kind, bfloat16), 499, 5).value().size(), 1);
      EXPECT_EQ(library->FindProducts(Shape3x3(kind, bfloat16), kLimit, 5).value().size(), 0);
    }
  }
  setenv("FAKE_CUBLASLT", "no_algorithms", 1);
  const ProductShape shape = Pointwise(ProductKind::kForward, true);
  EXPECT_EQ(library->FindProducts(shape, kLimit, 5).value().size(), 0);
}

TEST_F(VendorLibraryTest, SaysWhyALibraryCannotBeUsed) {
  EXPECT_THAT(OpenCudnn("libno_such_cudnn.so").status().message(),
              HasSubstr("cannot load libno_such_cudnn.so"));
  EXPECT_TRUE(absl::IsNotFound(OpenCublasLt("libno_such_cublas.so").status()));
  setenv("FAKE_CUDNN", "old", 1);
  EXPECT_THAT(OpenTestCudnn().status().message(),
              HasSubstr("is version 8905 of cuDNN, expected 9"));
  setenv("FAKE_CUDNN", "no_create", 1);
  EXPECT_THAT(OpenTestCudnn().status().message(), HasSubstr("does not start: FAKE_ERROR"));
  setenv("FAKE_CUBLASLT", "no_create", 1);
  EXPECT_THAT(OpenTestCublasLt().status().message(), HasSubstr("does not start: FAKE_ERROR"));
  EXPECT_THAT(OpenCudnn(TestLibraryPath("libcublasLt.so.13")).status().message(),
              HasSubstr("has no cudnnGetVersion"));
}

TEST_F(VendorLibraryTest, OpensTheLibrariesThatThereAre) {
  // A library that is loaded under its name is found by that name.
  const auto cudnn = OpenTestCudnn().value();
  GpuOptions options;
  options.library = GpuLibrary::kAuto;
  options.library_choices_file = testing::TempDir() + "/no_such_folder/choices";
  const auto both_or_one = OpenLibraries(options, "a\tGPU").value();
  ASSERT_NE(both_or_one, nullptr);
  EXPECT_EQ(both_or_one->libraries[0]->name(), "cudnn");
  EXPECT_TRUE(both_or_one->own_competes);
  ASSERT_NE(both_or_one->file, nullptr);
  options.library = GpuLibrary::kVendor;
  EXPECT_FALSE(OpenLibraries(options, "a GPU").value()->own_competes);
}

// Choices that were made with other kernels must not be kept.
TEST(KernelsVersionTest, IsTheNewestOfTheNotes) {
  const std::string path = PUSHPULL_SOURCE_DIR "/kernels/cuda/NOTES.md";
  PosixFileSystem files;
  const std::string notes = ReadWholeFile(files, path).value();
  const size_t begin = notes.find("\n## Versions\n");
  ASSERT_NE(begin, std::string::npos) << path;
  const size_t end = notes.find("\n## ", begin + 1);
  int newest = 0;
  for (const absl::string_view line : absl::StrSplit(notes.substr(begin, end - begin), '\n')) {
    const std::vector<absl::string_view> cells = absl::StrSplit(line, '|');
    int version = 0;
    if (cells.size() > 1 && absl::SimpleAtoi(cells[1], &version))
      newest = std::max(newest, version);
  }
  EXPECT_EQ(kKernelsVersion, newest) << "by the table of versions in " << path;
}

TEST_F(VendorLibraryTest, WithoutLibrariesOurKernelsComputeOrTheUserIsTold) {
  setenv("FAKE_CUDNN", "no_create", 1);
  setenv("FAKE_CUBLASLT", "no_create", 1);
  const auto keeps_loaded = OpenTestCudnn();
  GpuOptions options;
  options.library = GpuLibrary::kAuto;
  EXPECT_EQ(OpenLibraries(options, "a GPU").value(), nullptr);
  options.library = GpuLibrary::kVendor;
  EXPECT_THAT(OpenLibraries(options, "a GPU").status().message(),
              AllOf(HasSubstr("--gpu_library=vendor needs cuDNN 9 or cuBLASLt 13"),
                    HasSubstr("LD_LIBRARY_PATH"), HasSubstr("--gpu_library=own")));
}

}  // namespace
}  // namespace pushpull::emulated_cuda
