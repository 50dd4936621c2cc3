// Tested by tests/kernels/cuda/emulation/vendor_library_test.cc.
#include "kernels/cuda/vendor/open_libraries.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "glog/logging.h"

#include "common/base/file_system.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

// Returns one line, without tabs, that names everything on this machine on which a choice depends.
std::string Conditions(absl::string_view gpu, const ChoiceContext& context) {
  int driver = 0;
  cudaDriverGetVersion(&driver);
  std::string text = absl::StrCat(gpu, ", driver ", driver, ", kernels ", kKernelsVersion);
  for (const auto& library : context.libraries) {
    absl::StrAppend(&text, ", ", library->name(), " ", library->version());
  }
  return absl::StrReplaceAll(text, {{"\t", " "}, {"\n", " "}});
}

FileSystem* Files() {
  static PosixFileSystem* const files = new PosixFileSystem;
  return files;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChoiceContext>> OpenLibraries(const GpuOptions& options,
                                                             absl::string_view gpu) {
  auto context = std::make_unique<ChoiceContext>();
  std::vector<std::string> missing;
  const auto add = [&](absl::StatusOr<std::unique_ptr<ProductLibrary>> library) {
    if (library.ok()) {
      context->libraries.push_back(*std::move(library));
    } else {
      missing.push_back(std::string(library.status().message()));
    }
  };
  add(OpenCudnn());
  add(OpenCublasLt());
  const std::string why = absl::StrJoin(missing, "; ");
  if (context->libraries.empty()) {
    if (options.library == GpuLibrary::kVendor) {
      return absl::FailedPreconditionError(
          absl::StrCat("--gpu_library=vendor needs cuDNN 9 or cuBLASLt 13: ", why,
                       "; put their folders into LD_LIBRARY_PATH, or use --gpu_library=own"));
    }
    LOG(INFO) << "convolutions are computed by our kernels only: " << why;
    return nullptr;
  }
  context->own_competes = options.library == GpuLibrary::kAuto;
  const std::string conditions = Conditions(gpu, *context);
  context->file = std::make_unique<ChoiceFile>(
      Files(), context->own_competes ? options.library_choices_file : "", conditions);
  LOG(INFO) << "libraries for convolutions: " << conditions
            << (missing.empty() ? "" : absl::StrCat("; ", why));
  return context;
}

}  // namespace pushpull::PUSHPULL_CUDA
