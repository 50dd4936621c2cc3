// The input is a VOC annotation file.
#include <string>

#include "tests/fuzz/fuzz_input.h"
#include "worker/data/voc_annotations.h"

namespace pushpull {
namespace {

void Run(absl::string_view input) {
  const std::string bytes(
      input);  // allocated with its exact size, so that reads past the end are found
  const absl::StatusOr<AnnotatedImage> image = ParseVocAnnotation(bytes, "fuzz");
  if (!image.ok()) {
    CHECK(absl::IsInvalidArgument(image.status())) << image.status();
    return;
  }
  CHECK(image->width >= 1 && image->height >= 1);
  for (size_t i = 0; i < image->objects.size(); ++i) {
    const AnnotatedObject& object = image->objects[i];
    CHECK(!object.text.empty());
    CHECK_EQ(object.index, static_cast<int>(i));
    Box box = object.box;
    if (CheckBox(&box).usable()) CheckUsableBox(box);
  }
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}
