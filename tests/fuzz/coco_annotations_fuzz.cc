// The input is COCO's instance annotations.
#include <sstream>
#include <string>

#include "tests/fuzz/fuzz_input.h"
#include "worker/data/coco_annotations.h"

namespace pushpull {
namespace {

void Run(absl::string_view input) {
  std::istringstream stream{std::string(input)};
  const absl::StatusOr<CocoAnnotations> read = ReadCocoAnnotations(stream, "fuzz");
  if (!read.ok()) {
    CHECK(absl::IsInvalidArgument(read.status())) << read.status();
    return;
  }
  CHECK(!read->images.empty());
  for (const AnnotatedImage& image : read->images) {
    CHECK(image.width >= 1 && image.height >= 1 && !image.filename.empty());
    for (const AnnotatedObject& object : image.objects) {
      CHECK(read->categories.Find(object.text).has_value()) << object.text;
      Box box = object.box;
      if (CheckBox(&box).usable()) CheckUsableBox(box);
    }
  }
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}
