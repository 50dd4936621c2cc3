// The first byte is the length of the label file, which follows. The rest is the image file.
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "tests/fuzz/fuzz_input.h"
#include "worker/data/idx_source.h"

namespace pushpull {
namespace {

constexpr int kNumClasses = 10;

// A file in memory that has a path, because IDX readers take paths.
class TemporaryFile {
 public:
  explicit TemporaryFile(absl::string_view bytes) : descriptor_(memfd_create("fuzz", 0)) {
    CHECK_GE(descriptor_, 0);
    CHECK_EQ(write(descriptor_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  ~TemporaryFile() { close(descriptor_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  std::string path() const { return absl::StrCat("/proc/self/fd/", descriptor_); }

 private:
  const int descriptor_;
};

void Run(absl::string_view input) {
  const size_t labels_bytes = TakeByte(&input);
  const TemporaryFile labels(TakeBytes(&input, labels_bytes));
  const TemporaryFile images(input);
  const absl::StatusOr<std::unique_ptr<ImageSource>> source =
      IdxSource::Open(images.path(), labels.path(), kNumClasses);
  if (!source.ok()) {
    CHECK(absl::IsDataLoss(source.status()) || absl::IsInvalidArgument(source.status()))
        << source.status();
    return;
  }
  CHECK_GE((*source)->size(), 1);
  for (int64_t i = 0; i < (*source)->size() && i < 300; ++i) {
    Example example;
    CHECK((*source)->Get(i, &example).ok());
    CheckImage(example.image);
    CHECK(example.label >= 0 && example.label < kNumClasses) << example.label;
  }
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}
